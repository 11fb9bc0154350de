"""Memory management of the process: reuse of freed memory, return of memory to the operating
system, measurement of the peak memory."""

import ctypes
import os
import resource
import sys
from typing import Any

from nmt.training.callback import Callback

# Parameter numbers of the C function mallopt, from malloc.h.
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_THRESHOLD = -3
CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables that set the capacities of two primitive caches: the cache in oneDNN, and
the cache in PyTorch's interface to oneDNN. A primitive is a compiled operation for one combination
of matrix sizes."""
OFTEN = 5
"""Number of progress reports between two returns of freed memory to the operating system. More
frequent returns cost time, because the system zeroes memory pages before they are used again."""


def keep_few_products(count: int = 32) -> None:
    """Limits the caches of oneDNN primitives to `count` entries. The function must be called before
    the first bfloat16 matrix multiplication.

    By default, PyTorch caches 1,024 primitives with their working memory, one per combination of
    matrix sizes. With batches of many sizes, the caches take gigabytes, although few primitives are
    used again.
    """
    for name in CACHES:
        os.environ.setdefault(name, str(count))


def keep_freed_memory() -> None:
    """Makes the C library reuse freed memory. The function has an effect with glibc only.

    By default, glibc returns every large block to the kernel, and the next tensor needs fresh,
    zeroed memory pages. Zeroing takes about a tenth of the time of a training step on a CPU.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)


def peak_memory() -> float:
    """Returns the peak memory of the process so far, in MB."""
    # The system reports bytes on macOS, kilobytes elsewhere.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


class Trimming(Callback):
    """Callback that regularly returns freed memory to the operating system."""

    every_rank = True

    def __init__(self) -> None:
        self._trim = _function("malloc_trim") or (lambda _: None)
        self._reports = 0

    def on_update(self, update: Any) -> None:
        self._reports += 1
        if self._reports % OFTEN == 0:
            self._trim(0)

    def on_validation(self, update: int, epoch: float, validation: Any, best: bool) -> None:
        self._trim(0)


def _function(name: str) -> Any:
    """Returns the C library's function with the given name; None if the library has no such
    function."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
