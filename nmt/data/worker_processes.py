"""Parallel map over worker processes, with results in input order."""

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import torch.utils.data

from nmt.foundation.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
QUEUED = 8
"""Maximum number of items per worker process that are computed in advance."""
PR_SET_PDEATHSIG = 1  # value from linux/prctl.h


class _Items(torch.utils.data.Dataset[Any]):
    """Data set whose element at index x is x, so that a DataLoader passes on its indices."""

    def __getitem__(self, item: Any) -> Any:
        return item


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], processes: int
) -> Iterator[Result]:
    """Yields the results of a function for all items, in order.

    function: function applied to each item
    items: items, which are read on demand and need not fit into memory
    processes: number of worker processes; 0 computes in this process

    A UserError that `function` raises is raised again unchanged, even if it occurred in a worker
    process.
    """
    if not processes:
        yield from map(function, items)
        return
    loader: Any = torch.utils.data.DataLoader(
        _Items(),
        batch_size=None,
        sampler=items,
        num_workers=processes,
        prefetch_factor=QUEUED,
        collate_fn=partial(_result_or_error, function),
        multiprocessing_context="fork",
        worker_init_fn=partial(_start, os.getpid()),
        generator=torch.Generator(),  # the global random state stays unchanged
    )
    for result in loader:
        if isinstance(result, UserError):
            raise result
        yield result


def _result_or_error(function: Callable[[Item], Result], item: Item) -> Result | UserError:
    try:
        return function(item)
    except UserError as error:
        # The error is returned, because DataLoader adds a traceback to a raised error's message.
        return error


def _start(parent: int, _: int) -> None:
    """Initialises a worker process. The kernel then kills the process when its parent ends, so that
    inherited locks are released. A signal to the whole process group is left to the parent, which
    still needs the results of its workers in order to stop and save.

    parent: id of the parent process
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.disable()  # cycle detection over millions of small lists takes a fifth of the time
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # killed before the call to prctl
        os._exit(1)
