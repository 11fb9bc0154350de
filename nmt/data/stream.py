"""A part of a data set as it comes from its files, chunk by chunk: it need not fit into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from nmt.data import Pairs, Text, unique_suffixes
from nmt.data.split import PARTS, Slice, part_of
from nmt.foundation.errors import UserError


@dataclass(frozen=True)
class Stream:
    """`read` gives chunks of pairs, from the beginning each time it is called; `name` says where they come from. What is in
    `files`, and `settings`, which say how they are read, identify the content. `empty`: the error if there are no pairs."""

    name: str
    read: Callable[[], Iterator[Pairs]]
    files: Sequence[Path]
    settings: str
    empty: str = "no sentence pairs in it"

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.stat().st_size for file in self.files)

    def digest(self) -> str:
        """A hash of the content."""
        with ThreadPoolExecutor(len(self.files) or 1) as pool:
            hashes = [*pool.map(_hash, self.files)]
        return hashlib.sha256("\0".join([*hashes, self.settings]).encode()).hexdigest()

    def sliced(self, slice_: Slice | None) -> Stream:
        """Some of the rows."""
        if slice_ is None:
            return self

        def read() -> Iterator[Pairs]:
            count = sum(map(len, self.read())) if slice_.needs_count else 2**62
            rows, first = slice_.rows(count), 0
            for chunk in self.read():
                start, stop = max(rows.start - first, 0), min(rows.stop - first, len(chunk))
                if start < stop:
                    yield chunk.select(range(start, stop))
                first += len(chunk)
                if first >= rows.stop:
                    return

        return replace(
            self, name=f"{self.name}@{slice_}", read=read, settings=f"{self.settings} @{slice_}"
        )

    def part(self, share: float, number: int) -> Stream:
        """One of the three parts (0 train, 1 validation, 2 test) into which a share of its rows cuts it."""

        def read() -> Iterator[Pairs]:
            for chunk in self.read():
                rows = zip(chunk.source, chunk.target, strict=True)
                its = [i for i, pair in enumerate(rows) if part_of(share, *pair) == number]
                if its:
                    yield (
                        chunk.select(its) if number == 0 else replace(chunk.select(its), links=None)
                    )

        empty = f"data.split={share:g} leaves nothing for the {PARTS[number]} part; choose another share"
        return replace(
            self, read=read, settings=f"{self.settings} part {number} of {share}", empty=empty
        )


Keep = Callable[[Stream, bool], Pairs]
"""How the pairs of a part are kept; whether they are those to train on."""


def in_memory(stream: Stream, training: bool = False) -> Pairs:
    """All pairs as lists. Raises UserError if there are none."""
    chunks = list(stream.read())
    if not chunks:
        raise UserError(f"{stream.name}: {stream.empty}")
    links = None if chunks[0].links is None else _joined([chunk.links or [] for chunk in chunks])
    source, target = (
        _joined([getattr(chunk, side) for chunk in chunks]) for side in ("source", "target")
    )
    return Pairs(source, target, stream.name, links)


def _joined(texts: Sequence[Text]) -> list[str]:
    return [line for text in texts for line in text]


Read = Callable[[str, bool], Stream]
"""Reads a part; with its alignments, if it is the one to train on."""


def read_parts(
    read: Read, keep: Keep, train: str, validation: Sequence[str], test: str | None, share: float
) -> tuple[Pairs, Pairs, Pairs | None, dict[str, Pairs]]:
    """Train, validation, test, and further validation parts by their names: each from a part of its own, or the small ones
    from the first."""
    first = read(train, True)
    if share:
        parts = [keep(first.part(share, number), number == 0) for number in range(3)]
        return parts[0], parts[1], parts[2], {}
    names = unique_suffixes(validation)
    kept = keep(first, True)
    own, *others = (in_memory(read(part, False)) for part in validation)
    last = None if test is None else in_memory(read(test, False))
    return kept, own, last, dict(zip(names[1:], others, strict=True))


def _hash(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
