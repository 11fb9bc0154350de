"""Memory of this process: how the C library keeps and returns it."""

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
"""Environment variables of oneDNN and of PyTorch's layer above it: number of prepared products that
they keep, one for each combination of sizes."""
OFTEN = 5
"""Reports between two returns of memory: returned pages cost time, as they are zeroed when they are
needed again."""


def keep_few_products(count: int = 128) -> None:
    """Bounds the caches of products in bfloat16; call it before the first product.

    By default, PyTorch keeps 1,024 products with their working memory. Batches of many sizes fill
    gigabytes with them, and few products are used again.
    """
    for name in CACHES:
        os.environ.setdefault(name, str(count))


def keep_freed_memory() -> None:
    """Makes the C library reuse freed memory. Does nothing where the C library is not glibc.

    By default glibc returns every large block to the kernel, and the next tensor pays for fresh,
    zeroed pages: about a tenth of a training step on a CPU.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)


def peak_memory() -> float | None:
    """Largest memory of this process so far, in MB; None where the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    # Bytes on macOS, kilobytes elsewhere.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


class Trimming(Callback):
    """Callback that returns freed memory to the system now and then: holes that no later tensor has
    filled."""

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
    """A function of the C library; None if it has no function of this name."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
