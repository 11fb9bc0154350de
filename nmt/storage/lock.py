"""Lock files: one writer at a time. A lock ends with its process."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from nmt.foundation.errors import UserError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)
RETRY_SECONDS = 0.2
"""Seconds between two attempts to take a lock that another process holds."""
SILENT_ATTEMPTS = 10
"""Attempts to take a lock before a log message; shorter waiting logs none."""


class LockHeld(UserError):
    """Error: the lock is held by another process."""


@dataclass(frozen=True)
class Holder:
    """Process that holds a lock.

    process: number of the process
    host: name of its machine
    since: date and time of the lock
    """

    process: int
    host: str
    since: str

    @classmethod
    def read(cls, file: Path) -> Holder | None:
        """The process that a lock file names; None without a readable name."""
        try:
            fields = json.loads(file.read_text(encoding="utf-8"))
            return cls(int(fields["process"]), str(fields["host"]), str(fields["since"]))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} (since {self.since})"


class Lock:
    """Exclusive right to write something.

    The operating system releases the lock when the process ends, so a file left behind has no
    effect. On systems and file systems without locks, nothing is locked.

    Args:
        file: lock file; names its holder.
        what: the thing to write, for messages.

    Raises:
        LockHeld: another process holds the lock.
        UserError: the lock file cannot be written.
    """

    def __init__(self, file: Path, what: str) -> None:
        self.path = file
        try:
            self._file = _open_locked(file, what)
        except OSError as error:
            raise UserError(
                f"{what}: cannot be written ({error.strerror}). Free some space, or choose another "
                "folder"
            ) from error

    def release(self) -> None:
        if not self._file.closed:
            with contextlib.suppress(OSError):
                # Before the release: afterwards, the file may be that of another process.
                self.path.unlink(missing_ok=True)
            self._file.close()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _open_locked(file: Path, what: str) -> IO[str]:
    """The locked file, with its holder in it."""
    with contextlib.ExitStack() as closed_on_error:
        opened = closed_on_error.enter_context(open(file, "a+", encoding="utf-8"))
        try:
            if fcntl is not None:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = Holder.read(file) or "another process"
            raise LockHeld(
                f"{what}: {holder} is writing it. Wait until it has finished, or choose another"
            ) from None
        except OSError:  # a file system without locks
            pass
        if not _is_named(opened, file):
            return _open_locked(file, what)  # the new file of this name
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        opened.truncate(0)  # the name of an earlier holder
        opened.write(json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), since))) + "\n")
        opened.flush()
        closed_on_error.pop_all()
    return opened


def _is_named(opened: IO[str], file: Path) -> bool:
    """Whether an open file still has its name; its previous holder may have removed it."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), file.stat())
    except FileNotFoundError:
        return False


def wait_for_lock(file: Path, what: str) -> Lock:
    """Takes a lock as soon as no other process holds it. Raises UserError as `Lock` does."""
    attempts = 0
    while True:
        try:
            return Lock(file, what)
        except LockHeld:
            attempts += 1
        if attempts == SILENT_ATTEMPTS:
            log.info("%s: another process is writing it; waiting", what)
        time.sleep(RETRY_SECONDS)
