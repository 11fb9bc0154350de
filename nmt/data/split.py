"""Parts of a data set: named by the user, cut out as NAME@START:STOP, or split off by a hash.

The part of a line depends on the line alone, so that parts keep their lines when others are added,
and equal lines are in the same part.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from nmt.data import Labelled, as_list
from nmt.foundation.errors import UserError

PARTS = ("train", "validation", "test")
_SLICED_PART = re.compile(r"(.+)@(-?\d+%?)?:(-?\d+%?)?", re.DOTALL)


@dataclass(frozen=True)
class PartNames:
    """The keys data.train, data.validation, data.test and data.split.

    train: part to train on.
    validation: parts to validate on; the first one chooses the best checkpoint.
    test: part to test on, or None.
    share: share of `train` that is split off for validation, and again for testing, if these are
        not parts of their own; otherwise 0.

    Raises ValueError if the keys contradict each other.
    """

    train: str
    validation: list[str]
    test: str | None
    share: float

    @property
    def named(self) -> list[str]:
        """All named parts: train, validation, test."""
        return [self.train, *self.validation, *as_list(self.test)]

    def __post_init__(self) -> None:
        if bool(self.validation) == bool(self.share) or (self.share and self.test is not None):
            raise ValueError(
                "data.validation, data.split: name a validation part (and a test part, if there "
                "is one), or give a share such as data.split=0.02, which is taken from the "
                "training part for each of the two"
            )
        if self.validation:
            check_names("data.validation", self.validation)


def check_names(key: str, names: list[str]) -> None:
    """Raises ValueError if there are no names, or if one is repeated."""
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{key}=[{','.join(names)}]: name at least one, and each once")


@dataclass(frozen=True)
class Slice:
    """Rows of a part from `start` to `stop`, counted from 0 as in Python, or in per cent."""

    start: str
    stop: str

    def rows(self, count: int) -> range:
        """The rows of a part with `count` rows."""
        return range(count)[_row(self.start, count) : _row(self.stop, count)]

    @property
    def needs_count(self) -> bool:
        """Whether the rows depend on their number."""
        return any(mark in self.start + self.stop for mark in "%-")

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


def _row(bound: str, count: int) -> int | None:
    if not bound:
        return None
    return round(float(bound[:-1]) * count / 100) if bound.endswith("%") else int(bound)


def parse_part(part: str) -> tuple[str, Slice | None]:
    """Name and slice of NAME or NAME@START:STOP; the slice is None for all rows."""
    match = _SLICED_PART.fullmatch(part)
    if match is None:
        return part, None
    return match[1], Slice(match[2] or "", match[3] or "")


def part_of(share: float, *texts: str) -> int:
    """Index into PARTS of a row, by the hash of its texts.

    Validation and test get `share` of all rows each.
    """
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64  # uniform in [0, 1)
    if position < share:
        return 1
    return 2 if position < 2 * share else 0


def split_labelled(data: Labelled, share: float) -> list[Labelled]:
    """Train, validation and test part. Raises UserError if one of them is empty."""
    parts = (part_of(share, text) for text in data.texts)
    return [
        replace(data, texts=[data.texts[i] for i in rows], labels=[data.labels[i] for i in rows])
        for rows in rows_of_parts(parts, data.name, share)
    ]


def rows_of_parts(parts: Iterable[int], name: str, share: float) -> list[list[int]]:
    """Row numbers of each part, from the part of each row. Raises UserError if a part is empty."""
    rows_by_part: list[list[int]] = [[], [], []]
    for row, part in enumerate(parts):
        rows_by_part[part].append(row)
    for part_name, rows in zip(PARTS, rows_by_part, strict=True):
        if not rows:
            raise UserError(f"{name}: {empty_part(part_name, share)}")
    return rows_by_part


def empty_part(part: str, share: float) -> str:
    """Error text for a part without rows."""
    return f"data.split={share:g} leaves nothing for the {part} part; choose another share"
