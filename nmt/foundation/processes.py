"""Functions for local processes: set-up, number of CPU cores, and test for a running process."""

import ctypes
import logging
import os
import sys
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)
# Values of the C function mallopt by parameter number, from malloc.h.
_MALLOC_SETTINGS = {
    -3: 2**30,  # M_MMAP_THRESHOLD
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD
    -2: 2**26,  # M_TOP_PAD
}


def prepare_process(threads: int | None = None) -> None:
    """Sets up logging, memory allocation and, if given, the number of PyTorch threads."""
    # imported late, since rich and torch are slow to import
    from nmt.foundation.terminal import set_up_logging

    set_up_logging()
    keep_freed_memory()
    if threads is not None:
        import torch

        if threads > available_cores():
            log.warning(
                "threads=%s: the process has %s CPU cores; further threads make it slower",
                f"{threads:,}",
                available_cores(),
            )
        torch.set_num_threads(threads)


def keep_freed_memory() -> None:
    """Makes the C library reuse freed memory. The function has an effect with glibc only.

    By default, glibc returns every large block to the kernel, and the next tensor needs fresh,
    zeroed memory pages. Zeroing takes about a tenth of the time of a training step on a CPU.
    """
    mallopt = c_function("mallopt")
    if mallopt is not None:
        for parameter, value in _MALLOC_SETTINGS.items():
            mallopt(parameter, value)


def c_function(name: str) -> Any:
    """Returns the C library's function with the given name; None if the library has no such
    function."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None


def available_cores() -> int:
    """Returns the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def is_running(process: int) -> bool:
    """Returns whether a local process is running; a zombie process counts as ended.

    process: process id
    """
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # the process belongs to another user
        pass
    try:
        # Bytes, because the name of a process may be cut within a character.
        status = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):  # raised on systems without /proc
        return True
    return status not in (b"Z", b"X")
