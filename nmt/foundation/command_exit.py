"""Messages and exit statuses of commands for errors that the user can fix."""

import contextlib
import errno
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable

from nmt.foundation.errors import Stopped, UserError, first_line
from nmt.foundation.json_log import error_line
from nmt.foundation.plugins import problem_of
from nmt.foundation.torchrun import Silent, is_connected, of_torchrun

FIRST_TELLS = 10.0
"""Seconds before ranks other than 0 report an error, so that rank 0 can report it first."""
DISK_FULL = 74
"""Exit status after a full disk (EX_IOERR of sysexits.h)."""
ACCESS_ERRORS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
"""Values of `errno` for a path that the user may not access, or that is too long."""
OUT_OF_MEMORY = re.compile("MemoryError|OutOfMemory|out of memory|can't allocate memory")
"""Regular expression for exceptions of Python and PyTorch about a lack of memory."""
OUTPUT_ERRORS = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT)
"""Values of `errno` after a failed attempt to write output."""


def with_exit_status(action: Callable[[], object]) -> None:
    """Calls a function, and converts its exceptions to a message and an exit status.

    The status is DISK_FULL for a full disk, the `exit_status` of any other UserError, and 130 after
    an interruption. Unexpected exceptions are converted only while plugins are in use.
    """
    try:
        action()
        # Reports a full disk or a closed pipe now, instead of when Python exits.
        if sys.stdout is not None:
            sys.stdout.flush()
    except UserError as error:
        _tell(error)
        raise SystemExit(DISK_FULL if _is_full(error.__cause__) else error.exit_status) from None
    except Stopped as stopped:
        raise SystemExit(0 if stopped.planned else 130) from None
    except KeyboardInterrupt:
        # Another Ctrl-C ends the process at once, without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Prevents Python from reporting the broken pipe again at exit.
        sys.stderr.close()
        raise SystemExit(1) from None
    except Exception as error:
        if isinstance(error, MemoryError | RuntimeError) and OUT_OF_MEMORY.search(repr(error)):
            remedy = "use smaller batches, shorter lines or a smaller network"
            problem: str | None = f"not enough memory ({first_line(error)}); {remedy}"
        elif isinstance(error, OSError) and error.errno in ACCESS_ERRORS:
            problem = f"{error.filename}: cannot be accessed ({error.strerror})"
        elif isinstance(error, OSError) and error.errno in OUTPUT_ERRORS:
            problem = f"{error.filename or 'output'}: cannot be written ({error.strerror})"
            with contextlib.suppress(OSError):  # discards the rest of the buffer
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        else:
            problem = problem_of(error)
        if problem is None:
            raise
        _tell(UserError(problem))
        raise SystemExit(DISK_FULL if _is_full(error) else 1) from None


def _is_full(error: BaseException | None) -> bool:
    """Returns whether an error reports a full disk or an exhausted quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _tell(error: UserError) -> None:
    logger = logging.getLogger("nmt")
    ranks = of_torchrun()
    if not ranks.first and not is_connected():
        # If rank 0 has the same error, rank 0 reports the error and torchrun ends this process.
        time.sleep(FIRST_TELLS)
    if ranks.first and logger.handlers:
        logger.error("%s", error)
    elif ranks.first or not isinstance(error, Silent):
        print(error_line(str(error)), file=sys.stderr)
