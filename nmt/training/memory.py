"""How this process keeps and returns memory."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # malloc.h
CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Of oneDNN and of PyTorch's layer above it: how many prepared products they keep, one for each combination of sizes."""


OFTEN = 5
"""Reports of the training between two returns of memory: the pages must be zeroed when they are needed again."""


def keep_few_products(count: int = 128) -> None:
    """Bounds the caches of products in bfloat16, before the first of them. By default it is 1,024, each with its working
    memory, which batches of all sizes fill with gigabytes; those that come again in every batch are few."""
    for name in CACHES:
        os.environ.setdefault(name, str(count))


def keep_freed_memory() -> None:
    """Asks the C library to reuse freed memory: by default it hands every large block back to the kernel when a tensor dies,
    and the next tensor pays for fresh, zeroed pages, about a tenth of a training step on a CPU. Does nothing where the C
    library is not glibc."""
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 2**26)


def peak_memory() -> float | None:
    """The most memory that this process has had at a time, in MB; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / (1e6 if sys.platform == "darwin" else 1e3), 1)


class Trimming:
    """Observer that returns memory to the system now and then: holes between tensors that no other size has filled."""

    def __init__(self) -> None:
        self._trim, self._calls = _function("malloc_trim"), 0

    def on_update(self, update: Any) -> None:
        self._calls += 1
        if self._trim is not None and self._calls % OFTEN == 0:
            self._trim(0)

    def on_validation(
        self, update: int, epoch: float, metrics: dict[str, float], best: bool
    ) -> None:
        if self._trim is not None:
            self._trim(0)


def _function(name: str) -> Any:
    """A function of the C library; None where there is no such."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
