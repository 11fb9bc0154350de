"""Names of files in run folders, and atomic replacement of files: a file has either the old or the
new content."""

import contextlib
import functools
import itertools
import json
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from nmt.foundation.errors import UsageError, UserError

BEST = "best.safetensors"
LAST = "last.safetensors"
LOCK = ".lock"
"""Name of the lock file in a run folder. The training process holds the lock."""
WRITING = ".writing"
"""File name suffix of incomplete files, which are renamed when their content is complete."""
_numbers = itertools.count()


def check_base_name(path: Path) -> None:
    """Raises UsageError if the path of output files without extensions is empty or has an
    extension, or its folder does not exist."""
    if not path.name:
        raise UsageError(f"output={path}: not the name of a file; give a name without extension")
    if path.suffix in (".md", ".json", ".html", ".tex", ".csv", ".png"):
        raise UsageError(
            f"output={path}: several files are written, which get their own extensions; give "
            f"output={path.with_suffix('')}"
        )
    check_folder(path)


def check_folder(path: Path, name: str = "") -> None:
    """Raises UsageError if the folder of a file that will be written does not exist, or does not
    permit writing.

    path: path of the file
    name: name of the file in the message; by default the path
    """
    if not path.parent.is_dir():
        raise UsageError(f"{name or path}: cannot be written (folder {path.parent} not found)")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{name or path}: cannot be written (folder {path.parent} is read-only)")


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Returns the metadata of a safetensors file; empty for other files."""
    try:
        with safe_open(path, "np") as opened:
            return opened.metadata() or {}
    except (OSError, SafetensorError):
        return {}


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the content of a file atomically; returns after the content is on the disk.

    Raises UserError if writing fails; an existing file is then unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}{WRITING}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            # Syncs the content before the rename, which might otherwise reach the disk first.
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        previous = "; the previous file is unchanged" if path.exists() else ""
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}){previous}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def read_json_object(file: Path) -> dict[str, Any]:
    """Returns the JSON object in a file; {} if the file has no object or cannot be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def crc32(parts: Iterable[bytes | memoryview]) -> int:
    """Returns the CRC-32 checksum of concatenated bytes."""
    return functools.reduce(lambda checksum, part: zlib.crc32(part, checksum), parts, 0)


def sync_folder(folder: Path) -> None:
    """Syncs a folder to the disk, so that a power failure cannot undo a rename."""
    with contextlib.suppress(OSError):  # some operating systems cannot sync folders
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def remove_unfinished(folder: Path, name: str = "*") -> None:
    """Removes incomplete files left by a crashed process. The caller must hold the lock on the
    files.

    folder: folder of the files
    name: glob pattern of the names of the complete files
    """
    for file in folder.glob(f".{name}.*{WRITING}"):
        with contextlib.suppress(OSError):
            file.unlink()
