"""Batches decoded at the same time.

On a CPU, two threads with a batch each finish sooner than two threads that share the small products
of one batch and wait for each other after every product.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MAX_WORKERS = 4
"""Batches searched at the same time; more threads only wait for Python's lock."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], device: torch.device
) -> Iterator[Result]:
    """Results of all items, in their order. The workers share the caller's number of threads.

    The workers live as long as the call: idle threads that have once multiplied would slow down the
    small products of all others, because OpenMP waits passively with more threads than cores.
    """
    threads = torch.get_num_threads()
    workers = min(threads, MAX_WORKERS, len(items))
    if device.type != "cpu" or workers < 2:
        yield from map(function, items)
        return
    limit = (threads // workers,)  # threads of each worker
    pool = ThreadPoolExecutor(workers, "nmt", initializer=_limit_threads, initargs=limit)
    try:
        # The barrier makes the pool start every worker, each with its number of threads.
        barrier = threading.Barrier(workers)
        list(pool.map(lambda _: barrier.wait(), range(workers)))
        # torch's number is also the default of threads started later: it is restored.
        torch.set_num_threads(threads)
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _limit_threads(threads: int) -> None:
    """Sets the number of intra-op threads of this thread; the read-back applies it at once."""
    torch.set_num_threads(threads)
    torch.get_num_threads()


def length_batches(
    indices: Sequence[int], lengths: Sequence[int], max_positions: int
) -> list[list[int]]:
    """Batches of similar lengths, from the longest to the shortest.

    indices: items to batch
    lengths: length of every item
    max_positions: positions of a batch, padding included; a longer item is a batch of its own
    """
    batches: list[list[int]] = []
    for i in sorted(indices, key=lambda i: -lengths[i]):
        # The first item of a batch is its longest.
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_positions:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
