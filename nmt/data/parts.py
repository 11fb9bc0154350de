"""Parts of a data set: named by the user, cut out as NAME@START:STOP, or split off by a hash.

A part is read chunk by chunk, so that it need not fit into memory. With data.split, the part of a
line depends on a hash of the line alone: parts keep their lines when lines are added, and equal
lines are in the same part.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from nmt.data import Labelled, Pairs, Splits, as_list, unique_suffixes
from nmt.data.formats import Rows
from nmt.data.pair_columns import PairColumns, check_names
from nmt.foundation.errors import UserError

PARTS = ("train", "validation", "test")
"""Parts into which data.split cuts the training part."""
_SLICED_PART = re.compile(r"(.+)@((?:-?\d+%?)?:(?:-?\d+%?)?)", re.DOTALL)
Item = TypeVar("Item", Pairs, Rows)
Mapped = TypeVar("Mapped", Pairs, Rows)
Row = TypeVar("Row")


@dataclass(frozen=True)
class PartNames:
    """The keys data.train, data.validation, data.test and data.split.

    train: part to train on.
    validation: parts to validate on; the first one chooses the best checkpoint.
    test: part to test on, or None.
    share: share of `train` that is split off for validation, and again for testing, if these are
        not named; otherwise 0.

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


def parse_part(part: str) -> tuple[str, str]:
    """NAME and START:STOP of NAME@START:STOP; without a slice, the second text is empty."""
    match = _SLICED_PART.fullmatch(part)
    return (match[1], match[2]) if match else (part, "")


def _rows_of_slice(slice_: str, count: int) -> range:
    """Rows of START:STOP, counted from 0 as in Python, or in per cent, of `count` rows."""
    start, stop = (_row(bound, count) for bound in slice_.split(":"))
    # The slice of a range handles negative numbers and numbers beyond the end.
    return range(count)[start:stop]


def _row(bound: str, count: int) -> int | None:
    if not bound:
        return None
    return round(float(bound[:-1]) * count / 100) if bound.endswith("%") else int(bound)


@dataclass(frozen=True)
class Stream(Generic[Item]):
    """Chunks of a part: sentence pairs, or rows of a table.

    name: origin of the rows, for messages.
    read: returns the chunks, from the beginning each time.
    files: files that are read; their bytes are the first part of the content's identity.
    settings: how they are read, the second part of the identity.
    empty: error text if there are no rows.
    """

    name: str
    read: Callable[[], Iterator[Item]]
    files: Sequence[Path] = ()
    settings: str = ""
    empty: str = "contains no sentence pairs"

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.stat().st_size for file in self.files)

    def count(self, most: int) -> int:
        """Number of rows. Counting ends soon after `most`."""
        count = 0
        for chunk in self.read():
            count += len(chunk)
            if count > most:
                break
        return count

    def digest(self) -> str:
        """A hash of the content."""
        with ThreadPoolExecutor() as pool:
            # The files are read at the same time.
            hashes: list[str] = list(pool.map(_hash, self.files))
        return hashlib.sha256("\0".join([*hashes, self.settings]).encode()).hexdigest()

    def map(self, function: Callable[[Item], Mapped], settings: str) -> Stream[Mapped]:
        """A stream of the results of `function`; `settings` identify the function."""
        return Stream(self.name, lambda: map(function, self.read()), self.files, settings)

    def sliced(self, slice_: str) -> Stream[Item]:
        """The rows of a slice START:STOP (see `parse_part`); all rows if it is empty."""
        if not slice_:
            return self

        def read() -> Iterator[Item]:
            # Rows counted from the end, or in per cent, need a first pass that counts all rows.
            needs_count = any(mark in slice_ for mark in "%-")
            count = sum(map(len, self.read())) if needs_count else 2**62
            rows = _rows_of_slice(slice_, count)
            first = 0
            for chunk in self.read():
                start = max(rows.start - first, 0)
                stop = min(rows.stop - first, len(chunk))
                if start < stop:
                    yield chunk.select(range(start, stop))
                first += len(chunk)
                if first >= rows.stop:
                    return

        name = f"{self.name}@{slice_}"
        return replace(self, name=name, read=read, settings=f"{self.settings} @{slice_}")


def _hash(file: Path) -> str:
    """SHA-256 of a file."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


Keep = Callable[[Stream[Pairs], bool], Pairs]
"""Keeps the pairs of a stream, in memory or on disk. The second argument: whether they are the
training text."""
ReadPart = Callable[[str, bool], Stream[Pairs]]
"""Opens a part by its name. The second argument: whether its word alignments are read."""


def in_memory(stream: Stream[Pairs], training: bool = False) -> Pairs:
    """All pairs as lists. Raises UserError if the stream is empty."""
    chunks = list(stream.read())
    if not chunks:
        raise UserError(f"{stream.name}: {stream.empty}")
    return Pairs(
        source=[line for chunk in chunks for line in chunk.source],
        target=[line for chunk in chunks for line in chunk.target],
        name=stream.name,
        links=None
        if chunks[0].links is None
        else [line for chunk in chunks for line in chunk.links or ()],
    )


def load_splits(columns: PairColumns, names: PartNames, read: ReadPart, keep: Keep) -> Splits:
    """The parts of a data set; small parts may be split off the training part.

    columns: columns of the text.
    names: names of the parts.
    read: opens a part.
    keep: keeps the pairs of the training part, and of parts that are split off.
    """
    train = read(names.train, True)
    if names.share:
        # Each part reads the whole text and keeps its lines.
        parts = [keep(_split_off(train, names.share, part), part == 0) for part in range(3)]
        splits = Splits(parts[0], parts[1], parts[2], columns.languages)
    else:
        splits = with_named_parts(keep(train, True), names, read, columns.languages)
    return replace(splits, sources=len(columns.sources), factors=columns.factors)


def with_named_parts(
    train: Pairs, names: PartNames, read: ReadPart, languages: tuple[str, str]
) -> Splits:
    """A training part with the named validation and test parts, which are read into memory.

    train: the training part.
    names: names of the parts.
    read: opens a part.
    languages: source and target.
    """
    validation = [in_memory(read(part, False)) for part in names.validation]
    suffixes = unique_suffixes(names.validation)
    return Splits(
        train=train,
        validation=validation[0],
        test=None if names.test is None else in_memory(read(names.test, False)),
        languages=languages,
        more_validation=dict(zip(suffixes[1:], validation[1:], strict=True)),
    )


def _split_off(stream: Stream[Pairs], share: float, part: int) -> Stream[Pairs]:
    """Part 0, 1 or 2 (see PARTS) of a stream, without links unless it is the training part."""

    def read() -> Iterator[Pairs]:
        for chunk in stream.read():
            rows = zip(chunk.source, chunk.target, strict=True)
            selected = [i for i, pair in enumerate(rows) if part_of(share, *pair) == part]
            if selected:
                pairs = chunk.select(selected)
                yield replace(pairs, links=None) if part else pairs  # links are for training

    settings = f"{stream.settings} part {part} of {share}"
    return replace(stream, read=read, settings=settings, empty=_empty_part(part, share))


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
    rows_by_part = split_rows(range(len(data)), data.texts.__getitem__, data.name, share)
    return [
        replace(data, texts=[data.texts[i] for i in rows], labels=[data.labels[i] for i in rows])
        for rows in rows_by_part
    ]


def split_rows(
    rows: Iterable[Row], text_of: Callable[[Row], str], name: str, share: float
) -> list[list[Row]]:
    """The rows of each part. Raises UserError if a part is empty.

    rows: all rows.
    text_of: text of a row, whose hash decides on the part.
    name: name of the data that is split.
    share: share of validation and of test.
    """
    rows_by_part: list[list[Row]] = [[], [], []]
    for row in rows:
        rows_by_part[part_of(share, text_of(row))].append(row)
    if [] in rows_by_part:
        raise UserError(f"{name}: {_empty_part(rows_by_part.index([]), share)}")
    return rows_by_part


def _empty_part(part: int, share: float) -> str:
    """Error text for a part without rows."""
    return f"data.split={share:g} leaves nothing for the {PARTS[part]} part; choose another share"
