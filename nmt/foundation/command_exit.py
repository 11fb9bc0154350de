"""Exit of a command: messages for errors that the user can fix, and the exit status."""

import contextlib
import errno
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.ranks import Silent, connected, of_torchrun

FIRST_TELLS = 5.0
"""Seconds that other ranks wait, so that rank 0 reports a common error."""


def with_exit_status(action: Callable[[], Any]) -> Any:
    """Calls a function, and turns errors for users into messages and an exit status.

    The status is 1 for a UserError or a full disk, 130 after an interruption.
    """
    try:
        result = action()
        # A full disk or a closed pipe is noticed here, not in the exit of Python.
        if sys.stdout is not None:
            sys.stdout.flush()
        return result
    except UserError as error:
        _tell(error)
        raise SystemExit(1) from None
    except Stopped as stopped:
        raise SystemExit(0 if stopped.planned else 130) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Python would report the broken pipe again when it flushes at exit.
        sys.stderr.close()
        raise SystemExit(1) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT):
            raise
        _tell(UserError(f"cannot be written ({error.strerror})"))
        with contextlib.suppress(OSError):  # the rest of the buffer is dropped
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise SystemExit(1) from None


def _tell(error: UserError) -> None:
    logger = logging.getLogger("nmt")
    ranks = of_torchrun()
    if not ranks.first and not connected(ranks):
        # torchrun ends this process if the first rank has the same error and reports it.
        time.sleep(FIRST_TELLS)
    if ranks.first and logger.handlers:
        logger.error("%s", error)
    elif ranks.first or not isinstance(error, Silent):
        print(f"error: {error}", file=sys.stderr)
