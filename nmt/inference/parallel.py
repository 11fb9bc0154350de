"""Decoding of several batches at the same time.

On a CPU, two threads with separate batches finish sooner than two threads on the same batch.
Threads that share a batch divide small matrix multiplications, and wait for each other after each
multiplication.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from nmt.foundation.progress import Progress

MAX_WORKERS = 4
"""Maximum number of batches decoded at the same time. Further threads would wait for Python's
global interpreter lock.
"""

Item = TypeVar("Item")
Result = TypeVar("Result")
ProgressCallback = Callable[[int], object]
"""Type of progress callbacks: functions of the number of newly finished lines."""


def no_progress(lines: int) -> None:
    """Default progress callback, which ignores the number of finished lines."""


def parallel_map(
    function: Callable[[Item], Result], items: Sequence[Item], device: torch.device
) -> Iterator[Result]:
    """Applies a function to all items, in parallel on a CPU, and yields the results in order.

    The worker threads divide the caller's intra-op threads. The workers end with the call, because
    idle OpenMP threads slow down the small matrix multiplications of other threads.

    function: function to apply to each item
    items: items to process
    device: device of the computation; on a device other than a CPU, items are processed one by one
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
    """Sets the number of intra-op threads of the calling thread."""
    torch.set_num_threads(threads)
    # PyTorch initialises a thread when it first reads the number, with the number that any thread
    # has set last. Reading it here prevents a later initialisation with another number.
    torch.get_num_threads()


def length_batches(
    indices: Sequence[int], lengths: Sequence[int], max_positions: int
) -> list[list[int]]:
    """Returns batches of items with similar lengths, from the longest to the shortest.

    indices: items to batch
    lengths: length of every item
    max_positions: maximum number of positions per batch, padding included; a longer item forms a
        batch of its own
    """
    batches: list[list[int]] = []
    for i in sorted(indices, key=lambda i: -lengths[i]):
        # The first item of a batch is its longest.
        if batches and lengths[batches[-1][0]] * (len(batches[-1]) + 1) <= max_positions:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def results_in_batches(
    function: Callable[[list[int]], list[Result]],
    batches: Sequence[list[int]],
    lengths: Sequence[int],
    device: torch.device,
    activity: str,
    progress: ProgressCallback,
) -> Iterator[tuple[int, Result]]:
    """Processes lines in batches, and yields (line index, result) for every line.

    function: function of a batch's line indices, which returns one result per line
    batches: indices of the lines of each batch
    lengths: number of tokens of every line, from which the remaining time is estimated
    device: device of the computation
    activity: name of the work in the progress display, such as "translating"
    progress: callback after each batch, which receives the number of lines in the batch
    """
    results = parallel_map(function, batches, device)
    sizes = [sum(lengths[i] for i in batch) for batch in batches]
    with Progress(activity, sum(map(len, batches)), "lines", sum(sizes)) as step:
        for batch, size, batch_results in zip(batches, sizes, results, strict=True):
            yield from zip(batch, batch_results, strict=True)
            step(len(batch), size)
            progress(len(batch))
