"""Streams: parts of a data set that are read in chunks and need not fit into memory."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from nmt.data import Pairs
from nmt.data.formats import Rows
from nmt.foundation.errors import UserError

Item = TypeVar("Item", Pairs, Rows)
Mapped = TypeVar("Mapped", Pairs, Rows)


def _row(bound: str, count: int) -> int | None:
    """Returns the row index of a slice bound of a table; None without a bound.

    bound: row index, or percentage of the rows such as 90%; "" without a bound
    count: number of rows of the table
    """
    if not bound.endswith("%"):
        return int(bound) if bound else None
    percent = float(bound[:-1])
    # -10% is the same row as 90%.
    return round((max(0, 100 + percent) if bound.startswith("-") else percent) * count / 100)


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
            hashes: list[str] = list(pool.map(file_hash, self.files))
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
                # Rows without any requested column have length 0; their reader reports the columns.
                if selected or not len(chunk):
                    yield chunk.select(selected)
                first += len(chunk)
                if first >= rows.stop:
                    return

        return replace(
            self,
            name=f"{self.name}@{slice_}",
            read=read,
            settings=f"{self.settings} @{slice_}",
        )


def file_hash(file: Path) -> str:
    """Returns the SHA-256 digest of a file."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def in_memory(stream: Stream[Pairs], training: bool = False) -> Pairs:
    """Reads all pairs of a stream into lists.

    stream: sentence pairs
    training: unused; accepted because all functions of the type `Keep` have this argument

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
