"""A part of a data set read chunk by chunk, so that it need not fit into memory."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from nmt.data import Pairs, Splits, Text, unique_suffixes
from nmt.data.pair_columns import PairColumns
from nmt.data.split import PARTS, PartNames, Slice, empty_part, part_of
from nmt.foundation.errors import UserError


class RowChunk(Protocol):
    """Some rows."""

    def __len__(self) -> int: ...

    def select(self, indices: range) -> Any:
        """The rows with these indices."""
        ...


Item = TypeVar("Item", bound=RowChunk)
Mapped = TypeVar("Mapped", bound=RowChunk)


@dataclass(frozen=True)
class Stream(Generic[Item]):
    """Chunks of a part.

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

    def map(self, function: Callable[[Item], Mapped], settings: str) -> Stream[Mapped]:
        """A stream of the results of `function`; `settings` are its own settings."""
        return Stream(self.name, lambda: map(function, self.read()), self.files, settings)

    def sliced(self, slice_: Slice | None) -> Stream[Item]:
        """Some of the rows; None: all."""
        if slice_ is None:
            return self

        def read() -> Iterator[Item]:
            count = sum(map(len, self.read())) if slice_.needs_count else 2**62
            rows = slice_.rows(count)
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


Keep = Callable[[Stream[Pairs], bool], Pairs]
"""Keeps the pairs of a stream, in memory or on disk. The second argument: whether they are the
training text."""
ReadPart = Callable[[str, bool], Stream[Pairs]]
"""Opens a part by its name. The second argument: whether its word alignments are read."""


@runtime_checkable
class Data(Protocol):
    """A data set, built from the keys of its YAML.

    A class attribute `pictures = True` declares that its source lines name pictures.
    """

    def load(self) -> Splits:
        """Reads the data. Raises UserError if it is missing, misaligned or not text.

        Data sets that can be larger than memory take an argument `keep` of type Keep.
        """
        ...


def in_memory(stream: Stream[Pairs], training: bool = False) -> Pairs:
    """All pairs as lists. Raises UserError if there are none."""
    chunks = list(stream.read())
    if not chunks:
        raise UserError(f"{stream.name}: {stream.empty}")
    source = _joined([chunk.source for chunk in chunks])
    target = _joined([chunk.target for chunk in chunks])
    links = [chunk.links for chunk in chunks if chunk.links is not None]
    return Pairs(source, target, stream.name, _joined(links) if links else None)


def _joined(texts: Sequence[Text]) -> list[str]:
    return list(itertools.chain.from_iterable(texts))


def load_splits(columns: PairColumns, names: PartNames, read: ReadPart, keep: Keep) -> Splits:
    """The parts of a data set; small parts may be split off the training part.

    columns: columns of the text.
    names: names of the parts.
    read: opens a part.
    keep: keeps the pairs of the training part, and of parts that are split off.
    """
    train = read(names.train, True)
    if names.share:
        parts = [keep(_split_off(train, names.share, part), part == 0) for part in range(3)]
        splits = Splits(parts[0], parts[1], parts[2], columns.languages)
    else:
        splits = with_named_parts(keep(train, True), names, read, columns.languages)
    return replace(splits, sources=len(columns.sources), factors=columns.factors)


def with_named_parts(
    train: Pairs, names: PartNames, read: ReadPart, languages: tuple[str, str]
) -> Splits:
    """The training part with the validation and test parts that `names` names, in memory."""
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
                yield replace(pairs, links=None) if part else pairs

    settings = f"{stream.settings} part {part} of {share}"
    return replace(stream, read=read, settings=settings, empty=empty_part(PARTS[part], share))


def _hash(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
