"""Lock files, which ensure that only one process writes at a time. A lock is released when its
process ends."""

import contextlib
import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO

from nmt.foundation.errors import UsageError, UserError
from nmt.storage.files import read_json_object

try:
    import fcntl
except ImportError:  # fcntl exists on POSIX systems only
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)
RETRY_SECONDS = 0.2
"""Seconds between attempts to take a lock that another process holds."""
SILENT_ATTEMPTS = 10
"""Number of failed attempts to take a lock after which the wait is logged."""


class LockHeld(UserError):
    """Exception raised when another process holds a lock."""

    exit_status = 75  # EX_TEMPFAIL of sysexits.h: the same command may succeed later


@dataclass(frozen=True)
class Holder:
    """Process that holds a lock.

    process: process id
    host: host name of the machine on which the process runs
    since: date and time at which the process took the lock
    """

    process: int
    host: str
    since: str

    @classmethod
    def read(cls, file: Path) -> "Holder | None":
        """Returns the process named in a lock file, or None for a missing or unreadable file."""
        values = read_json_object(file)
        names = {field.name for field in fields(cls)}
        return cls(**values) if values.keys() == names else None

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} (since {self.since})"


class Lock(contextlib.AbstractContextManager["Lock"]):
    """Lock that gives one process exclusive write access to a file or folder.

    The operating system releases the lock when the process ends, so a lock file left behind has no
    effect. On systems and file systems without locks, the lock has no effect.

    file: path of the lock file, whose content names the holder; its folder is created if missing
    what: name of the protected file or folder, for messages

    Raises LockHeld if another process holds the lock, and UserError if the lock file cannot be
    written.
    """

    def __init__(self, file: Path, what: str) -> None:
        self.path = file
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open_locked(file, what)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError(f"{what}: is a file, or in a file; choose another folder") from error
        except OSError as error:
            raise UserError(
                f"{what}: cannot be written ({error.strerror}); choose another folder"
            ) from error

    def release(self) -> None:
        if not self._file.closed:
            with contextlib.suppress(OSError):
                # Remove before the release: afterwards, another process may own the file.
                self.path.unlink(missing_ok=True)
            self._file.close()

    def __exit__(self, *_: object) -> None:
        self.release()


def _open_locked(file: Path, what: str) -> IO[str]:
    """Opens and locks a lock file; returns the open file, which names this process as holder."""
    with contextlib.ExitStack() as closed_on_error:
        opened = closed_on_error.enter_context(open(file, "a+", encoding="utf-8"))
        try:
            if fcntl is not None:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = Holder.read(file) or "another process"
            raise LockHeld(
                f"{what}: {holder} is writing to it. Wait until the process has finished, or "
                "choose another output"
            ) from None
        except OSError:  # raised on file systems without locks
            pass
        if not _is_named(opened, file):
            return _open_locked(file, what)  # opens the new file with this name
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        opened.truncate(0)  # removes the name of an earlier holder
        opened.write(json.dumps(asdict(Holder(os.getpid(), socket.gethostname(), since))) + "\n")
        opened.flush()
        closed_on_error.pop_all()
    return opened


def _is_named(opened: IO[str], file: Path) -> bool:
    """Returns whether the path of an open lock file still refers to this file. The previous holder
    of the lock may have deleted the file."""
    try:
        return os.path.samestat(os.fstat(opened.fileno()), file.stat())
    except FileNotFoundError:
        return False


def wait_for_lock(file: Path, what: str) -> Lock:
    """Waits until no other process holds a lock, and takes the lock.

    file: path of the lock file
    what: name of the protected file or folder, for messages

    Raises UserError if the lock file cannot be written.
    """
    attempts = 0
    while True:
        try:
            return Lock(file, what)
        except LockHeld:
            attempts += 1
        if attempts == SILENT_ATTEMPTS:
            log.info("%s: waiting for another process that is writing to it", what)
        time.sleep(RETRY_SECONDS)
