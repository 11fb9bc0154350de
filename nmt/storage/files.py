"""Files that are replaced whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

from nmt.foundation.errors import UserError

WRITING = ".writing"
"""How the name of a file ends that is not yet whole."""
_numbers = itertools.count()


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces a file's content whole or not at all, and returns when it is on the disk. Raises UserError if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}{WRITING}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        kept = "; the previous file is unharmed" if path.exists() else ""
        raise UserError(f"{path}: cannot be written ({error.strerror or error}){kept}") from error
    except BaseException:  # a second Ctrl-C, too, leaves nothing behind
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Puts a folder's list of names on the disk: without that, a power cut may forget a rename."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:  # folders cannot be opened everywhere
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(opened)
    finally:
        os.close(opened)


def remove_unfinished(folder: Path) -> None:
    """Removes what a crash has left of files that were being written. Only for who holds the folder's lock."""
    for file in folder.glob(f".*{WRITING}"):
        with contextlib.suppress(OSError):
            file.unlink()
