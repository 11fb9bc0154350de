"""Cache folders, which are built once; a cache folder is either complete or absent."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from nmt.foundation.errors import UserError
from nmt.storage.files import WRITING, crc32, read_json_object, sync_folder, write_atomically
from nmt.storage.lock import wait_for_lock

MANIFEST = "complete.json"
"""Name of the manifest of a complete cache folder. The manifest contains the checksum of every
file, and the counts that the `build` function returned."""
BLOCK = 2**22
"""Number of bytes read at a time when a checksum is computed."""

Counts = dict[str, int]
"""Type of the counts in the manifest of a cache folder, such as the number of dropped pairs by
reason."""


def cache_folder() -> Path:
    """Returns the cache folder: NMT_CACHE if set, otherwise `nmt` in the user's cache folder.

    Raises UserError if NMT_CACHE is not set and the user has no home folder.
    """
    chosen = os.environ.get("NMT_CACHE")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"
    except RuntimeError as error:
        raise UserError(
            "no home folder for the cache: set NMT_CACHE to a writable folder"
        ) from error


def build_once(folder: Path, what: str, build: Callable[[Path], Counts | None]) -> Counts:
    """Builds a cache folder unless it is complete. Returns the counts that `build` returned when
    the folder was built, such as the number of dropped pairs by reason.

    Waits if another process is building the folder.

    folder: path whose name identifies the content
    what: name of the content, for messages
    build: function that writes all files into a given folder and may return counts, which are
        stored in the manifest of the folder

    Raises UserError if the folder cannot be written or is damaged.
    """
    counts = _checked(folder, what)
    if counts is not None:
        return counts
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with wait_for_lock(
            folder.with_name(f".{folder.name}.lock"), f"NMT_CACHE: {what} ({folder})"
        ):
            counts = _checked(folder, what)
            return _built(folder, build) if counts is None else counts
    except OSError as error:
        remedy = (
            "Free some space, or set NMT_CACHE to a folder on another disk"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "Set NMT_CACHE to a writable folder"
        )
        raise UserError(
            f"{folder}: the {what} cannot be written ({error.strerror or error}). {remedy}"
        ) from error


def _built(folder: Path, build: Callable[[Path], Counts | None]) -> Counts:
    """Builds a cache folder under a temporary name, and renames it when it is complete.

    folder: final path of the cache folder
    build: function that writes the files of the folder and returns counts, such as the number of
        dropped pairs; None without counts

    Returns the counts that `build` returned.
    """
    unfinished = folder.with_name(f".{folder.name}{WRITING}")
    for leftover in (unfinished, folder):
        shutil.rmtree(leftover, ignore_errors=True)  # left by a process that was killed
    unfinished.mkdir()
    try:
        counts = build(unfinished) or {}
        files = sorted(path for path in unfinished.rglob("*") if path.is_file())
        checksums = {str(file.relative_to(unfinished)): _checksum(file) for file in files}
        manifest = {"counts": counts, "checksums": checksums}
        write_atomically(unfinished / MANIFEST, json.dumps(manifest).encode())
        unfinished.rename(folder)  # from here on, the folder counts as complete
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return counts


def _checked(folder: Path, what: str) -> Counts | None:
    """Returns the counts in the manifest of a cache folder, such as the number of dropped pairs;
    None if the folder is incomplete.

    Raises UserError if a checksum differs.
    """
    manifest = read_json_object(folder / MANIFEST)
    if not {"checksums", "counts"} <= manifest.keys():
        return None
    checksums: Mapping[str, int] = manifest["checksums"]
    files = [folder / name for name in checksums]
    with ThreadPoolExecutor() as pool:
        current = pool.map(_checksum, files)
        for file, checksum, expected in zip(files, current, checksums.values(), strict=True):
            if checksum != expected:
                raise UserError(
                    f"{file}: damaged (wrong checksum), so the {what} cannot be used. Check "
                    f"the disk, and remove the folder {folder}; the next command builds the "
                    f"{what} again"
                )
    return dict(manifest["counts"])


def _checksum(file: Path) -> int:
    """Returns the CRC-32 checksum of a file, or -1 if the file does not exist."""
    if not file.is_file():
        return -1
    with open(file, "rb") as opened:
        return crc32(iter(partial(opened.read, BLOCK), b""))
