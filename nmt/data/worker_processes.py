"""Parallel map over worker processes, one per core, with results in input order."""

import collections
import ctypes
import gc
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from nmt.foundation.errors import UserError
from nmt.foundation.processes import available_cores

Item = TypeVar("Item")
Result = TypeVar("Result")
QUEUED = 3
"""Maximum number of items per worker process that wait for computation."""
PR_SET_PDEATHSIG = 1  # value from linux/prctl.h
_work: Any = None
"""Function that this worker process applies to its items, set once per process."""


def ordered_map(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yields the results of `work` for all items, in order.

    work: function applied in worker processes
    items: items, which are read on demand and need not fit into memory

    Raises UserError if a worker process is killed.
    """
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    results: collections.deque[Future[Result]] = collections.deque()
    with warnings.catch_warnings():
        # Python warns about fork in a process with threads; the workers use no threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ProcessPoolExecutor(available_cores(), context, _initialize, (work,))
        try:
            for item in items:
                results.append(pool.submit(_call, item))
                if len(results) > QUEUED * available_cores():
                    yield results.popleft().result()
            while results:
                yield results.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                "data preparation: a worker process was killed, possibly for lack of memory; free "
                "memory or use fewer cores"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _initialize(work: Any) -> None:
    global _work
    _work = work
    end_with_parent()
    gc.disable()  # cycle detection over millions of small lists takes a fifth of the time


def end_with_parent(*_: object) -> None:
    """Makes the kernel kill this process when its parent ends, to release inherited locks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _call(item: Any) -> Any:
    return _work(item)
