"""One writer at a time: a lock that lives as long as the process that holds it, however that process ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from nmt.foundation.errors import UserError

try:
    import fcntl
except ImportError:  # not a POSIX system: no locks
    fcntl = None  # type: ignore[assignment]


class Lock:
    """The right to write something, which a lock file stands for. The operating system takes the lock back when the process
    dies; a lock file that is left behind locks nothing.

    Raises UserError, naming `what` and who holds it, if another process does.
    """

    def __init__(self, file: Path, what: str) -> None:
        self.path = file
        self._file: IO[str] | None = None
        while self._file is None:
            self._file = self._locked(what)

    def _locked(self, what: str) -> IO[str] | None:
        """The lock file, locked; None if its last holder removed it meanwhile."""
        try:
            opened = open(self.path, "a+", encoding="utf-8")  # noqa: SIM115 (it stays open)
        except OSError as error:
            raise UserError(f"{what}: cannot be locked ({error.strerror})") from error
        if fcntl is not None:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with opened:
                    opened.seek(0)
                    holder = _holder(opened.read(1000))
                raise UserError(
                    f"{what}: {holder} is writing it. Wait until it has finished, or choose another"
                ) from None
            except OSError:  # a file system without locks
                pass
        try:
            there = self.path.stat().st_ino == os.fstat(opened.fileno()).st_ino
        except FileNotFoundError:
            there = False
        if not there:
            opened.close()
            return None
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            opened.truncate(0)
            opened.write(
                json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
                + "\n"
            )
            opened.flush()
        except OSError as error:
            self.path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                opened.close()
            why = error.strerror
            raise UserError(
                f"{what}: cannot be written ({why}). Free some space, or choose another folder"
            ) from error
        return opened

    def release(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self.path.unlink(
                    missing_ok=True
                )  # while it is still held, so that nobody else's is removed
            self._file.close()
            self._file = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


def _holder(text: str) -> str:
    """Who wrote a lock file."""
    try:
        found = json.loads(text)
        return f"process {int(found['process'])} on {str(found['host'])[:60]} (since {str(found['since'])[:20]})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "another process"
