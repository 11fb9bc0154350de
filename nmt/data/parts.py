"""Parts of a data set: training, validation and test sets named in the configuration.

A part can be sliced as NAME@START:STOP. With `data.split`, validation and test sets are split off
the training set: a hash of each line selects its set. Adding lines therefore does not move other
lines, and identical lines are in the same set. Parts are read in chunks and need not fit into
memory.
"""

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
"""Names of the sets that `data.split` creates from the training data."""
_SLICED_PART = re.compile(r"(.+)@((?:-?\d+%?)?:(?:-?\d+%?)?)", re.DOTALL)
Item = TypeVar("Item", Pairs, Rows)
Mapped = TypeVar("Mapped", Pairs, Rows)
Row = TypeVar("Row")


@dataclass(frozen=True)
class PartNames:
    """Data sets named by the keys data.train, data.validation, data.test and data.split.

    train: training set
    validation: validation sets; the first one selects the best checkpoint
    test: test set; None for no test
    share: fraction of `train` that is split off for validation, and the same fraction for test; 0
        if these sets are named

    Raises ValueError if the settings contradict each other.
    """

    train: str
    validation: list[str]
    test: str | None
    share: float

    @property
    def named(self) -> list[str]:
        """Names of the training, validation and test sets, in this order."""
        return [self.train, *self.validation, *as_list(self.test)]

    def __post_init__(self) -> None:
        if bool(self.validation) == bool(self.share) or (self.share and self.test is not None):
            raise ValueError(
                "data.validation, data.split: set either data.validation (and optionally "
                "data.test), or data.split, such as data.split=0.02 to hold out 2 % of "
                "data.train for validation and 2 % for test"
            )
        if self.validation:
            check_names("data.validation", self.validation)


def parse_part(part: str) -> tuple[str, str]:
    """Splits NAME@START:STOP into NAME and START:STOP; the second string may be empty."""
    match = _SLICED_PART.fullmatch(part)
    return (match[1], match[2]) if match else (part, "")


def _row(bound: str, count: int) -> int | None:
    """Returns a bound of a slice of `count` rows.

    bound: index, or percentage such as 90%; "" for no bound
    """
    if not bound:
        return None
    return round(float(bound[:-1]) * count / 100) if bound.endswith("%") else int(bound)


@dataclass(frozen=True)
class Stream(Generic[Item]):
    """Chunks of a training, validation or test set, either sentence pairs or table rows.

    name: origin of the rows, for messages
    read: function that returns an iterator over all chunks
    files: files that are read; their bytes are the first component of the content digest
    settings: settings for reading the files, the second component of the digest
    empty: error message if there are no rows
    """

    name: str
    read: Callable[[], Iterator[Item]]
    files: Sequence[Path] = ()
    settings: str = ""
    empty: str = "contains no sentence pairs"

    @property
    def size(self) -> int:
        """Total size of the files of the stream in bytes."""
        return sum(file.stat().st_size for file in self.files)

    def count(self, most: int) -> int:
        """Returns the number of rows; counting stops soon after `most` rows."""
        count = 0
        for chunk in self.read():
            count += len(chunk)
            if count > most:
                break
        return count

    def digest(self) -> str:
        """Returns a digest of the content of the files and of the settings for reading the
        files.
        """
        with ThreadPoolExecutor() as pool:
            # Files are hashed in parallel.
            hashes: list[str] = list(pool.map(_hash, self.files))
        return hashlib.sha256("\0".join([*hashes, self.settings]).encode()).hexdigest()

    def map(self, function: Callable[[Item], Mapped], settings: str) -> "Stream[Mapped]":
        """Returns a stream with a function applied to every chunk.

        function: function that converts a chunk into a new chunk
        settings: string that identifies the function in the digest
        """
        return Stream(self.name, lambda: map(function, self.read()), self.files, settings)

    def sliced(self, slice_: str) -> "Stream[Item]":
        """Returns a stream of the rows in a slice.

        slice_: START:STOP as Python slice indices or percentages; "" for all rows
        """
        if not slice_:
            return self

        def read() -> Iterator[Item]:
            # Negative bounds and percentages need a first pass that counts all rows.
            needs_count = any(mark in slice_ for mark in "%-")
            count = sum(map(len, self.read())) if needs_count else 2**62
            start, stop = (_row(bound, count) for bound in slice_.split(":"))
            # Slicing a range supports negative and out-of-range bounds.
            rows = range(count)[start:stop]
            first = 0
            for chunk in self.read():
                selected = range(len(chunk))[max(rows.start - first, 0) : max(rows.stop - first, 0)]
                if selected:
                    yield chunk.select(selected)
                first += len(chunk)
                if first >= rows.stop:
                    return

        name = f"{self.name}@{slice_}"
        return replace(self, name=name, read=read, settings=f"{self.settings} @{slice_}")


def _hash(file: Path) -> str:
    """Returns the SHA-256 digest of a file."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


Keep = Callable[[Stream[Pairs], bool], Pairs]
"""Function that stores a stream's pairs; the second argument is True for training pairs."""
ReadPart = Callable[[str, bool], Stream[Pairs]]
"""Function that opens a training, validation or test set; the second argument is True to read word
alignments too."""


def in_memory(stream: Stream[Pairs], training: bool = False) -> Pairs:
    """Reads all pairs of a stream into lists.

    stream: sentence pairs
    training: ignored; argument of every function of the type `Keep`

    Raises UserError if the stream is empty.
    """
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
    """Loads the training, validation and test sets of a data set.

    columns: columns of the sentence pairs
    names: names of the training, validation and test sets
    read: function that opens a training, validation or test set by name
    keep: function that stores training pairs and the sets created by `data.split`
    """
    train = read(names.train, True)
    if names.share:
        # Each part reads the whole stream and keeps only its own lines.
        parts = [keep(_split_off(train, names.share, part), part == 0) for part in range(3)]
        splits = Splits(parts[0], parts[1], parts[2], columns.languages)
    else:
        splits = with_named_parts(keep(train, True), names, read, columns.languages)
    return replace(splits, sources=len(columns.sources), factors=columns.factors)


def with_named_parts(
    train: Pairs, names: PartNames, read: ReadPart, languages: tuple[str, str]
) -> Splits:
    """Combines a training set with named validation and test sets, which are read into memory.

    train: training pairs
    names: names of the training, validation and test sets
    read: function that opens a training, validation or test set by name
    languages: names of the source and target languages
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
    """Returns the stream of one of the sets created by `data.split`; only the training set keeps
    alignments.

    stream: pairs of the training part
    share: fraction of the pairs for validation, and the same fraction for test
    part: index into PARTS
    """

    def read() -> Iterator[Pairs]:
        for chunk in stream.read():
            rows = zip(chunk.source, chunk.target, strict=True)
            selected = [i for i, pair in enumerate(rows) if part_of(share, *pair) == part]
            if selected:
                pairs = chunk.select(selected)
                # Alignments are used only in training.
                yield replace(pairs, links=None) if part else pairs

    settings = f"{stream.settings} part {part} of {share}"
    return replace(stream, read=read, settings=settings, empty=_empty_part(part, share))


def part_of(share: float, *texts: str) -> int:
    """Returns the index into PARTS for a row, determined by a hash of the row's texts.

    share: fraction of the rows for validation, and the same fraction for test
    texts: texts of the row
    """
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()
    position = int.from_bytes(digest[:8], "big") / 2**64  # uniform in [0, 1)
    if position < share:
        return 1
    return 2 if position < 2 * share else 0


def split_labelled(data: Labelled, share: float) -> list[Labelled]:
    """Divides labelled texts into training, validation and test sets.

    data: labelled texts
    share: fraction of the texts for validation, and the same fraction for test

    Raises UserError if a set is empty.
    """
    rows_by_part = split_rows(range(len(data)), data.texts.__getitem__, data.name, share)
    return [
        replace(data, texts=[data.texts[i] for i in rows], labels=[data.labels[i] for i in rows])
        for rows in rows_by_part
    ]


def split_rows(
    rows: Iterable[Row], text_of: Callable[[Row], str], name: str, share: float
) -> list[list[Row]]:
    """Divides rows into training, validation and test sets.

    rows: rows to divide
    text_of: function that returns the text of a row, whose hash determines the set
    name: name of the data, for the message
    share: fraction of the rows for validation, and the same fraction for test

    Raises UserError if a set is empty.
    """
    rows_by_part: list[list[Row]] = [[], [], []]
    for row in rows:
        rows_by_part[part_of(share, text_of(row))].append(row)
    if [] in rows_by_part:
        raise UserError(f"{name}: {_empty_part(rows_by_part.index([]), share)}")
    return rows_by_part


def _empty_part(part: int, share: float) -> str:
    """Returns the error message for an empty set created by `data.split`."""
    return f"data.split={share:g}: the {PARTS[part]} set is empty; choose another fraction"
