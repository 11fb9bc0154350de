"""Batches decoded at the same time. On a CPU, two threads with a batch each finish sooner than two threads that share the
small products of one batch and wait for each other after every product."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MOST = 4
"""Batches searched at the same time; with more, threads only wait for Python's lock."""

Job = TypeVar("Job")
Result = TypeVar("Result")


def parallel_map(
    do: Callable[[Job], Result], jobs: Sequence[Job], device: torch.device
) -> Iterator[Result]:
    """The results of all jobs, in their order. The workers share the caller's number of threads; for everybody else it stays
    as it is.

    The workers live as long as the call. Threads that have once multiplied, and are idle, would slow down the small products
    of all others: with more threads than cores, OpenMP waits passively.
    """
    threads = torch.get_num_threads()
    count = min(threads, MOST, len(jobs))
    if device.type != "cpu" or count < 2:
        yield from map(do, jobs)
        return
    pool = ThreadPoolExecutor(count, "nmt", initializer=_use, initargs=(threads // count,))
    try:
        ready = threading.Barrier(count)
        list(
            pool.map(lambda _: ready.wait(), range(count))
        )  # all of them exist, each with its number of threads
        torch.set_num_threads(threads)  # with which threads begin that others make from now on
        yield from pool.map(do, jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def _use(threads: int) -> None:
    """So many threads for this one. Asking for the number fixes it; otherwise its first product would take the process's."""
    torch.set_num_threads(threads)
    torch.get_num_threads()
