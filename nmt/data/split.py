"""A validation and a test part taken from a single table or pair of files. Which part a line is in depends on the line
alone, so parts keep their lines when others are added, and equal lines are in the same part."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from nmt.data import Labelled
from nmt.foundation.errors import UserError

PARTS = ("train", "validation", "test")
_CUT = re.compile(r"(.+)@(-?\d+%?)?:(-?\d+%?)?", re.DOTALL)


@dataclass(frozen=True)
class Slice:
    """Some rows of a part, counted from 0 as in Python (negative: from the end), or in per cent."""

    start: str
    stop: str

    def rows(self, count: int) -> range:
        start, stop = (
            None if not at else round(float(at[:-1]) * count / 100) if at.endswith("%") else int(at)
            for at in (self.start, self.stop)
        )
        return range(count)[start:stop]

    @property
    def needs_count(self) -> bool:
        """Whether which rows are meant depends on how many there are."""
        return any("%" in at or "-" in at for at in (self.start, self.stop))

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


def cut(part: str) -> tuple[str, Slice | None]:
    """A part as it was typed, NAME or NAME@START:STOP: its name, and which of its rows are meant (None: all)."""
    found = _CUT.fullmatch(part)
    return (part, None) if found is None else (found[1], Slice(found[2] or "", found[3] or ""))


def part_of(share: float, *texts: str) -> int:
    """0 train, 1 validation, 2 test: each of the two small parts has `share` of all texts."""
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    return 1 if place < share else 2 if place < 2 * share else 0


def split_labelled(texts: Labelled, share: float) -> tuple[Labelled, Labelled, Labelled]:
    """Train, validation, test, by the texts alone. Raises UserError if one of them would be empty."""
    chosen = into_parts((part_of(share, text) for text in texts.texts), texts.name, share)
    train, validation, test = (
        Labelled([texts.texts[i] for i in its], [texts.labels[i] for i in its], texts.name)
        for its in chosen
    )
    return train, validation, test


def into_parts(parts: Iterable[int], name: str, share: float) -> list[list[int]]:
    """The numbers of what is in each part. Raises UserError if there is nothing in one."""
    found: list[list[int]] = [[], [], []]
    for i, part in enumerate(parts):
        found[part].append(i)
    for called, its in zip(PARTS, found, strict=True):
        if not its:
            raise UserError(
                f"{name}: data.split={share:g} leaves nothing for the {called} part; choose another share"
            )
    return found
