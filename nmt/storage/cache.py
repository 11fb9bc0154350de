"""Cache folders that are built once. A folder is complete, with checksums, or absent."""

import errno
import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nmt.foundation.errors import UserError
from nmt.storage.files import WRITING, sync_folder, write_atomically
from nmt.storage.lock import wait_for_lock

MANIFEST = "complete.json"
"""File of a complete folder: counts, and the checksum of every other file."""
BLOCK = 2**22
"""Bytes read at once for a checksum."""

Counts = dict[str, int]


def cache_folder() -> Path:
    """Folder of the environment variable NMT_CACHE, else `nmt` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NMT_CACHE") or Path(base) / "nmt")


def build_once(folder: Path, what: str, build: Callable[[Path], Counts]) -> Counts:
    """Builds a folder unless it is complete, and returns its counts.

    Waits if another process is building the folder.

    folder: the folder; its name identifies the content
    what: the content, for messages
    build: function that writes all files into a given folder, and returns counts to store with them

    Raises UserError if the folder cannot be written, or is damaged.
    """
    counts = _checked(folder, what)
    if counts is not None:
        return counts
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(folder.with_name(f".{folder.name}.lock"), f"{what} ({folder})"):
            counts = _checked(folder, what)
            return _built(folder, build) if counts is None else counts
    except OSError as error:
        remedy = "Set NMT_CACHE to a folder that can be written"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "Free some space, or set NMT_CACHE to a folder on another disk"
        raise UserError(
            f"{folder}: the {what} cannot be written ({error.strerror or error}). {remedy}"
        ) from error


def _built(folder: Path, build: Callable[[Path], Counts]) -> Counts:
    """Builds under a temporary name, so that a folder with the final name is complete."""
    unfinished = folder.with_name(f".{folder.name}{WRITING}")
    for leftover in (unfinished, folder):
        shutil.rmtree(leftover, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir()
    try:
        counts = build(unfinished)
        checksums = {file.name: _checksum(file) for file in unfinished.iterdir()}
        manifest = {"counts": counts, "checksums": checksums}
        write_atomically(unfinished / MANIFEST, json.dumps(manifest).encode())
        unfinished.rename(folder)  # complete from now on
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return counts


def _checked(folder: Path, what: str) -> Counts | None:
    """Counts of a complete folder, else None. Raises UserError if the folder is damaged."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        counts: Counts = manifest["counts"]
        checksums: Mapping[str, int] = manifest["checksums"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    files = [folder / name for name in checksums]
    with ThreadPoolExecutor() as pool:
        current = pool.map(_checksum, files)
        for file, checksum in zip(files, current, strict=True):
            if checksum != checksums[file.name]:
                raise UserError(
                    f"{file}: is damaged, so the {what} cannot be used. Is the disk in order? "
                    f"Remove the folder {folder}; it is built again"
                )
    return counts


def _checksum(file: Path) -> int:
    """CRC-32 of a file; -1 if it does not exist."""
    if not file.is_file():
        return -1
    checksum = 0
    with open(file, "rb") as opened:
        while block := opened.read(BLOCK):
            checksum = zlib.crc32(block, checksum)  # continues the sum of the earlier blocks
    return checksum
