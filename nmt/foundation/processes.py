"""Process state and CPU cores of the local machine."""

import os
from pathlib import Path


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
        status = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # raised on systems without /proc
        return True
    return status not in ("Z", "X")
