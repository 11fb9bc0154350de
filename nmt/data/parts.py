"""Splits of a data set: training, validation and test sets named in the configuration.

Each set can be sliced as NAME@START:STOP (nmt/data/streams.py). With `data.split`, validation and
test sets are split off the training set: a hash of each line selects its set. Adding lines
therefore does not move other lines, and identical lines are in the same set.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from nmt.data import Labelled, Pairs, Splits, as_list, unique_suffixes
from nmt.data.pair_columns import PairColumns, check_names
from nmt.data.streams import Stream, in_memory
from nmt.foundation.errors import UserError

PARTS = ("train", "validation", "test")
"""Names of the sets that `data.split` creates from the training data."""
_SLICED_PART = re.compile(r"(.+)@((?:-?\d+%?)?:(?:-?\d+%?)?)", re.DOTALL)
Row = TypeVar("Row")


@dataclass(frozen=True)
class PartNames:
    """Data sets named by the keys data.train, data.validation, data.test and data.split.

    train: training set
    validation: validation sets; the first one selects the best checkpoint
    test: test set; None without a test set
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


Keep = Callable[[Stream[Pairs], bool], Pairs]
"""Function that stores a stream's pairs; the second argument is True for training pairs."""
ReadPart = Callable[[str, bool], Stream[Pairs]]
"""Function that opens a training, validation or test set; the second argument is True to read word
alignments too."""


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
    # The names of the further validation sets must differ from those of the other sets.
    further: list[str] = []
    for name in unique_suffixes(names.validation)[1:]:
        while name in ("train", "validation", "test", *further):
            name = f"validation-{name}"
        further.append(name)
    return Splits(
        train=train,
        validation=validation[0],
        test=None if names.test is None else in_memory(read(names.test, False)),
        languages=languages,
        more_validation=dict(zip(further, validation[1:], strict=True)),
    )


def _split_off(stream: Stream[Pairs], share: float, part: int) -> Stream[Pairs]:
    """Returns the stream of the training, validation or test set that `data.split` creates from the
    pairs of `data.train`. Only the stream of the training set contains word alignments.

    stream: all pairs of `data.train`
    share: fraction of the pairs for validation, and the same fraction for test
    part: set to return: 0 for training, 1 for validation, 2 for test
    """

    def read() -> Iterator[Pairs]:
        for chunk in stream.read():
            rows = zip(chunk.source, chunk.target, strict=True)
            selected = [i for i, pair in enumerate(rows) if part_of(share, *pair) == part]
            if selected:
                pairs = chunk.select(selected)
                # Alignments are used only in training.
                yield replace(pairs, links=None) if part else pairs

    return replace(
        stream,
        read=read,
        settings=f"{stream.settings} part {part} of {share}",
        empty=_empty_part(part, share),
    )


def part_of(share: float, *texts: str) -> int:
    """Returns the set of a row, determined by a hash of the row's texts: 0 for training, 1 for
    validation, 2 for test.

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
        count = len({text_of(row) for part in rows_by_part for row in part})
        problem = _empty_part(rows_by_part.index([]), share)
        raise UserError(f"{name}: {problem} ({count:,} different texts)")
    return rows_by_part


def _empty_part(part: int, share: float) -> str:
    """Returns the error message for an empty set created by `data.split`."""
    return (
        f"data.split={share:g}: the {PARTS[part]} set is empty, because equal texts stay in one "
        "set; choose another fraction"
    )
