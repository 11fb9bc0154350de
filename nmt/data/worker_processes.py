"""Parallel map in worker processes, one for each core, with results in the order of the items."""

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
"""Items per process that are submitted before the first of them is done."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_work: Any = None
"""Function of a worker process; it is sent once, not with every item."""


def ordered_map(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Results of `work` for every item, in order.

    The items are read on demand, so that they need not fit into memory. Raises UserError if a
    process is killed.
    """
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    results: collections.deque[Future[Result]] = collections.deque()
    with warnings.catch_warnings():
        # Python warns of a fork beside threads; these processes only compute.
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
                "a process that prepares the text was killed; is the memory too small?"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _initialize(work: Any) -> None:
    global _work
    _work = work
    end_with_parent()
    gc.disable()  # searching millions of small lists for cycles costs a fifth of the time


def end_with_parent(*_: object) -> None:
    """Kills this process when its parent ends for any reason; it may have inherited its locks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _call(item: Any) -> Any:
    return _work(item)
