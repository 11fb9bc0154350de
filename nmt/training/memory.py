"""Memory allocation of the process: reuse of freed memory, return of memory to the system, peak
memory."""

import ctypes
import os
import sys
from typing import Any

from nmt.training.callback import Callback

# Parameters of mallopt, from malloc.h.
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_THRESHOLD = -3
CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables that limit the caches of prepared matrix multiplications in oneDNN and in
PyTorch's layer above it."""
OFTEN = 5
"""Progress reports between two returns of memory to the system. More frequent returns cost time,
because the system zeroes pages before they are used again."""


def keep_few_products(count: int = 128) -> None:
    """Limits the caches of prepared bfloat16 matrix multiplications to `count` entries; must be
    called before the first multiplication.

    By default, PyTorch caches 1,024 entries with their working memory, one per combination of
    sizes. Batches of many sizes fill gigabytes, although few entries are used again.
    """
    for name in CACHES:
        os.environ.setdefault(name, str(count))


def keep_freed_memory() -> None:
    """Makes the C library reuse freed memory. It has no effect if the C library is not glibc.

    By default, glibc returns every large block to the kernel, and the next tensor needs fresh,
    zeroed pages. This takes about a tenth of a training step on a CPU.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)


def peak_memory() -> float | None:
    """Returns the peak memory of the process so far, in MB; None if the system does not report
    it."""
    try:
        import resource
    except ImportError:
        return None
    # Bytes on macOS, kilobytes elsewhere.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


class Trimming(Callback):
    """Callback that regularly returns freed memory to the system."""

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
    """Returns a function of the C library by name; None if it does not exist."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
