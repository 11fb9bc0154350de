"""Decodes several batches at the same time. On a CPU, two threads with a batch each are faster than two threads that
share the small products of one batch and wait for each other after each product."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

MOST = 4
"""Most batches searched at the same time; more would only wait for Python's global lock."""
_making = threading.Lock()

Job = TypeVar("Job")
Result = TypeVar("Result")


class Workers:
    """A pool of threads that divide the processor's threads among them; made when first needed. The caller's own number
    of torch threads does not change."""

    def __init__(self, device: torch.device) -> None:
        self._threads = torch.get_num_threads()
        self._count = min(self._threads, MOST) if device.type == "cpu" else 1
        self._pool: ThreadPoolExecutor | None = None

    def map(self, do: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterable[Result]:
        """The results of all jobs, in their order."""
        if self._count < 2 or len(jobs) < 2:
            return map(do, jobs)
        with _making:
            if self._pool is None:
                self._pool = self._made()
        return self._pool.map(do, jobs)

    def _made(self) -> ThreadPoolExecutor:
        each, ready = self._threads // self._count, threading.Barrier(self._count)
        pool = ThreadPoolExecutor(self._count, "nmt", initializer=torch.set_num_threads, initargs=(each,))
        list(pool.map(lambda _: ready.wait(), range(self._count)))  # all of them exist
        torch.set_num_threads(self._threads)  # the default for threads made elsewhere
        return pool
