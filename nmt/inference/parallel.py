"""Decoding of several batches at the same time.

On a CPU, two threads with a batch each finish sooner than two threads on the same batch. Threads on
one batch divide small matrix multiplications and wait for each other after each of them.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MAX_WORKERS = 4
"""Maximum number of batches decoded at the same time; more threads wait for Python's global lock.
"""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], device: torch.device
) -> Iterator[Result]:
    """Yields the results of all items in order, computed in parallel on a CPU.

    The workers divide the caller's intra-op threads. The workers end with the call: OpenMP threads
    that stay idle slow down the small matrix multiplications of other threads.

    function: function to apply
    items: arguments of the calls
    device: device of the function; items are processed one by one on a device other than a CPU
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
        # Restore the number of threads, which is also the default of threads started later.
        torch.set_num_threads(threads)
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _limit_threads(threads: int) -> None:
    """Sets the number of intra-op threads of the calling thread; reading it back applies it at
    once.
    """
    torch.set_num_threads(threads)
    torch.get_num_threads()


def length_batches(
    indices: Sequence[int], lengths: Sequence[int], max_positions: int
) -> list[list[int]]:
    """Returns batches of items with similar lengths, from the longest to the shortest.

    indices: items to batch
    lengths: length of every item
    max_positions: maximum number of positions in a batch, padding included; a longer item forms a
        batch alone
    """
    batches: list[list[int]] = []
    for i in sorted(indices, key=lambda i: -lengths[i]):
        # The first item of a batch is its longest.
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_positions:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches
