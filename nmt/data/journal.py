"""Folders that are made once, bit by bit: killed at any moment, the work goes on where it was; damage is noticed."""

from __future__ import annotations

import collections
import errno
import json
import logging
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UserError
from nmt.storage.files import write_atomically
from nmt.storage.lock import Lock, LockHeld

log = logging.getLogger(__name__)
TOLD = 2.0
"""Seconds of waiting for another process after which people are told."""
JOURNAL_SECONDS = 2.0
"""Time between two notes of how far the work is."""


class Journal:
    """How far the files of a folder are written: `items` of work are done, and `sizes` are the files' sizes after them."""

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self.folder, self.items, self.fresh = folder, 0, True
        self.sizes, self.counts = dict.fromkeys(files, 0), collections.Counter[str]()

    def save(self, sums: Mapping[str, list[int]] | None = None) -> None:
        state = {"items": self.items, "sizes": self.sizes, "counts": self.counts, "sums": sums}
        write_atomically(self.folder / "journal.json", json.dumps(state).encode())

    def load(self, state: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError if it is something else."""
        if {*state["sizes"]} != {*self.sizes} or min(state["items"], *state["sizes"].values()) < 0:
            raise ValueError("other files")
        for name, size in state["sizes"].items():
            if (self.folder / name).stat().st_size < size:
                raise ValueError(f"{name} is shorter than it was")
        self.items, self.sizes = int(state["items"]), dict(state["sizes"])
        self.counts = collections.Counter(state["counts"])

    def write(
        self,
        done: Iterable[tuple[dict[str, bytes], dict[str, int]]],
        step: Callable[[], None] | None = None,
    ) -> None:
        """Adds to the files, from where they are."""
        with ExitStack() as stack:
            opened = {}
            for name, size in self.sizes.items():
                file = opened[name] = stack.enter_context(open(self.folder / name, "ab"))
                file.truncate(size)
            noted = time.monotonic()
            for parts, counts in done:
                for name, data in parts.items():
                    opened[name].write(data)
                    self.sizes[name] += len(data)
                self.items, self.counts = self.items + 1, self.counts + collections.Counter(counts)
                if step is not None:
                    step()
                if time.monotonic() - noted > JOURNAL_SECONDS:
                    for file in opened.values():
                        file.flush()
                    self.save()
                    noted = time.monotonic()


def built(
    folder: Path, files: Iterable[str], what: str, build: Callable[[Journal], None]
) -> Journal:
    """The folder, made by `build` unless it is there; another process that makes it is waited for. Raises UserError if it
    cannot be written, or is damaged."""
    journal = Journal(folder, files)
    if _whole(journal, what):
        return journal
    try:
        with alone(folder, what):
            if _whole(journal, what):
                return journal
            build(journal)
            journal.save({path.name: _stamp(path) for path in folder.iterdir() if _is_part(path)})
    except OSError as error:
        raise UserError(
            f"{folder}: the {what} cannot be written ({error.strerror or error}). {_remedy(error)}"
        ) from error
    return journal


def _is_part(path: Path) -> bool:
    return path.is_file() and path.name != "journal.json" and not path.name.startswith(".")


def _whole(journal: Journal, what: str) -> bool:
    """Whether the work of a folder is finished. If it is not, the journal says how far it is."""
    try:
        state = json.loads((journal.folder / "journal.json").read_bytes())
        journal.load(state)
        sums = state["sums"]
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        journal.__init__(journal.folder, journal.sizes)  # type: ignore[misc]
        return False
    if sums is None:
        return False
    with ThreadPoolExecutor() as pool:
        found = dict(
            zip(sums, pool.map(lambda name: _stamp(journal.folder / name), sums), strict=True)
        )
    wrong = [name for name in sums if found[name] != sums[name]]
    if wrong:
        raise UserError(
            f"{journal.folder / wrong[0]}: is damaged, so the {what} cannot be used. Is the disk in order? Remove the "
            f"folder {journal.folder}; it is made again"
        )
    journal.fresh = False
    return True


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "Free some space, or set NMT_CACHE to a folder on another disk. What is written already is used when the "
            "command is given again"
        )
    return "Set NMT_CACHE to a folder that can be written"


def alone(folder: Path, what: str) -> Lock:
    """The lock of a folder, when whoever holds it has ended; the folder is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    began, told = time.monotonic(), False
    while True:
        try:
            return Lock(folder / ".lock", f"the {what}")
        except LockHeld:
            if not told and time.monotonic() - began > TOLD:
                log.info("%s: another process makes the %s; waiting", folder, what)
                told = True
            time.sleep(0.2)


def _stamp(file: Path) -> list[int]:
    """Its size and the sum of its bytes; nothing if it is not there."""
    if not file.is_file():
        return []
    value = 0
    with open(file, "rb") as opened:
        while block := opened.read(2**22):
            value = zlib.crc32(block, value)
    return [file.stat().st_size, value]
