"""Work on many items in as many processes as there are cores, with results in the order of the items."""

from __future__ import annotations

import collections
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from nmt.foundation.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
WAITING = 3
"""Items per process that are given out before the first of them is done."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h
_work: Any = None


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`work` of every item. Items are taken as they are needed, so that they need not fit into memory."""
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    waiting: collections.deque[Future[Result]] = collections.deque()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forks where threads are: the processes only compute
        pool = ProcessPoolExecutor(cores(), context, _begin, (work,))
        try:
            for item in items:
                waiting.append(pool.submit(_do, item))
                if len(waiting) > WAITING * cores():
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                "a process that prepares the text was ended from outside; is the memory too small?"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _begin(work: Any) -> None:
    global _work
    _work = work
    end_with_parent()
    gc.disable()  # looking for cycles among millions of small lists costs a fifth of the time, and there are none


def end_with_parent(*_: object) -> None:
    """Ends this process when the one that started it ends, however: it may hold that one's locks."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _do(item: Any) -> Any:
    return _work(item)
