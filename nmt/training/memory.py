"""Memory management of a training: return of memory to the operating system, small caches,
measurement of the peak memory."""

import os
import resource
import sys
from typing import Any

from nmt.foundation.processes import c_function
from nmt.training.callback import Callback

CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""Environment variables that set the capacities of two primitive caches: the cache in oneDNN, and
the cache in PyTorch's interface to oneDNN. A primitive is a compiled operation for one combination
of matrix sizes."""
OFTEN = 5
"""Number of progress reports after which freed memory is returned to the operating system. A
smaller number costs time, because the system zeroes memory pages before they are used again."""


def keep_few_products() -> None:
    """Limits the caches of oneDNN primitives to 32 entries. The function must be called before
    the first bfloat16 matrix multiplication.

    By default, PyTorch caches 1,024 primitives with their working memory, one per combination of
    matrix sizes. With batches of many sizes, the caches take gigabytes, although few primitives are
    used again.
    """
    for name in CACHES:
        os.environ.setdefault(name, "32")


def peak_memory() -> float:
    """Returns the peak memory of the process so far, in MB."""
    # The system reports bytes on macOS, kilobytes elsewhere.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1e6 if sys.platform == "darwin" else 1e3), 1)


class Trimming(Callback):
    """Callback that regularly returns freed memory to the operating system."""

    every_rank = True

    def __init__(self) -> None:
        self._trim = c_function("malloc_trim") or (lambda _: None)
        self._reports = 0

    def on_update(self, update: Any) -> None:
        self._reports += 1
        if self._reports % OFTEN == 0:
            self._trim(0)

    def on_validation(self, update: int, epoch: float, validation: Any, best: bool) -> None:
        self._trim(0)
