"""Columns of a source line.

    A dog runs .                         a text
    A dog runs .⇥Un chien court .        two sources, a tab between them (Zoph & Knight 2016)
    A dog runs .⇥DT NN VBZ .             a text and one factor (Sennrich & Haddow 2016)
    dog.jpg                              the name of a picture (Xu et al. 2015)
    A dog runs .⇥dog.jpg                 a text and a picture; no name: no picture

Ids of several texts are one sequence, with EOS between them. A piece p and its factors are one
number with these digits: p + V (f₁ + F₁ (f₂ + …)). The values of a factor are numbered from 1; 0
stands for the end of a sentence, and for values that training did not have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS

TAB = "\t"
PICTURE = 32
"""Tokens that a picture counts as, for the longest caption and for the size of a batch."""
LARGEST = 2**32
"""Number of ids that fit into unsigned integers of 32 bits."""


@dataclass(frozen=True)
class Pictured(Sequence[int]):
    """Ids of a line with a picture. It is false only if it has neither words nor a picture."""

    ids: list[int]
    picture: str

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return bool(self.picture or self.ids)

    def __getitem__(self, i: Any, /) -> Any:
        return self.ids[i]


def picture_of(ids: Sequence[int]) -> str:
    """Name of a line's picture, "" if it has none."""
    return ids.picture if isinstance(ids, Pictured) else ""


def length_of(ids: Sequence[int]) -> int:
    """Length of a line in tokens, its picture included."""
    return len(ids) + PICTURE * bool(picture_of(ids))


@dataclass(frozen=True)
class Columns:
    """Columns of the source lines that a model reads.

    sources: number of texts.
    factors: values of each factor.
    names: names of all columns, for messages.
    picture: whether the last column names a picture.

    Raises ValueError if there are several texts, and factors or a picture too.
    """

    sources: int = 1
    factors: tuple[tuple[str, ...], ...] = ()
    names: tuple[str, ...] = ()
    picture: bool = False

    def __post_init__(self) -> None:
        if self.sources < (not self.picture) or (self.sources != 1 and self.factors):
            raise ValueError(
                "factors belong to a single source: leave data.factors out, or name one data.source"
            )
        if self.picture and (self.sources > 1 or self.factors):
            raise ValueError("a picture can be combined with a single text without factors only")

    @classmethod
    def of(
        cls,
        lines: Iterable[str],
        sources: int,
        factors: int,
        names: Sequence[str] = (),
        picture: bool = False,
    ) -> Columns:
        """The columns of a training text, with the values that its factors have there.

        lines: the training text.
        sources: number of texts in a line.
        factors: number of factors in a line.
        names: see `Columns`.
        picture: see `Columns`.
        """
        # The text is read only if it has factors: it may be large.
        values: list[set[str]] = [set() for _ in range(factors)]
        for line in lines if factors else ():
            for values_of_factor, column in zip(values, line.split(TAB)[1:], strict=True):
                values_of_factor.update(column.split())
        return cls(sources, tuple(tuple(sorted(v)) for v in values), tuple(names), picture)

    @property
    def plain(self) -> bool:
        """Whether a line is one text."""
        return self.number == 1 and not self.picture

    @property
    def number(self) -> int:
        """Number of columns."""
        return self.sources + len(self.factors) + self.picture

    @property
    def described(self) -> str:
        """Content of a line, in words."""
        if self.plain:
            return "one text"
        if self.picture:
            return "a text and the name of a picture" if self.sources else "the name of a picture"
        names = f" ({', '.join(self.names)})" if self.names else ""
        if self.sources > 1:
            return f"{self.sources} sources{names}"
        return f"a text and {len(self.factors)} factor{'s' * (len(self.factors) > 1)}{names}"

    @property
    def radices(self) -> list[int]:
        """Number of values of each factor, 0 included."""
        return [len(values) + 1 for values in self.factors]

    def size(self, pieces: int) -> int:
        """Number of ids, given the number of pieces. Raises UserError if there are too many."""
        ids = pieces * math.prod(self.radices)
        if ids > LARGEST:
            raise UserError(
                f"data.factors: {ids:,} combinations of pieces and values; leave out the largest "
                "factors"
            )
        return ids

    def split(self, line: str) -> list[str]:
        """The columns of a line, all empty if the line is blank.

        Raises UserError if their number is not that of training, or if a factor does not have one
        value for each word.
        """
        if self.plain:
            return [line]
        if not line.strip():
            return [""] * self.number
        columns = line.split(TAB)
        if len(columns) != self.number:
            raise UserError(
                f'"{line[:40]}": {len(columns)} column{"s" * (len(columns) > 1)}, but the model '
                f"reads {self.described}, with a tab between them"
            )
        num_words = len(columns[0].split())
        for k, column in enumerate(columns[1:], 1) if self.factors else ():
            num_values = len(column.split())
            if num_values != num_words:
                name = self.names[k] if len(self.names) > k else f"factor {k}"
                raise UserError(
                    f'"{columns[0][:40]}" has {num_words} words between spaces, but {num_values} '
                    f"value{'s' * (num_values != 1)} of {name}"
                )
        return columns

    def words(self, line: str) -> str:
        """The text in a line."""
        if not self.sources:
            return ""
        return line.split(TAB)[0] if self.factors or self.picture else line

    def picture_in(self, line: str) -> str:
        """Name of a line's picture, "" if it has none."""
        return self.split(line)[-1].strip() if self.picture else ""

    def joined(self, texts: Sequence[list[int]]) -> list[int]:
        """Ids of a line from those of its texts, with EOS between them; none if all are empty."""
        ids = [i for text in texts for i in (EOS, *text)]  # the first EOS is dropped below
        return ids[1:] if any(texts) else []

    def texts(self, ids: Sequence[int]) -> list[list[int]]:
        """The inverse of `joined`."""
        # Positions of EOS, with one before the ids and one after them.
        ends = [-1, *(n for n, i in enumerate(ids) if i == EOS), len(ids)]
        return [list(ids[begin + 1 : end]) for begin, end in itertools.pairwise(ends)]

    def shortened(self, ids: Sequence[int], most: int) -> Sequence[int]:
        """At most `most` ids; of several texts, equally many of each."""
        if isinstance(ids, Pictured):  # the picture itself has no ids
            return replace(ids, ids=ids.ids[:most])
        if len(ids) <= most or self.sources == 1:
            return ids[:most]
        # Cutting the end alone would drop the last texts.
        share = max(1, most // self.sources)
        return self.joined([text[:share] for text in self.texts(ids)])

    def unknown(self, values: Sequence[str]) -> set[str]:
        """Values that training did not have, in the columns of a line's factors."""
        columns = zip(self.factors, values, strict=True)
        return set().union(*({*column.split()}.difference(names) for names, column in columns))

    def with_factors(
        self, ids: Sequence[int], places: Sequence[range], values: Sequence[str], pieces: int
    ) -> list[int]:
        """Ids of pieces combined with the factors of their words.

        ids: pieces of the text.
        places: numbers of the words that each piece is a part of.
        values: for each factor, a value for each word.
        pieces: size of the vocabulary, V.
        """
        combined = list(ids)
        weight = pieces  # V, V F₁, V F₁ F₂ …
        for names, column in zip(self.factors, values, strict=True):
            numbers = {name: number for number, name in enumerate(names, 1)}
            values_of_words = column.split()
            # A piece of several words has the factors of the first one.
            for i, place in enumerate(places):
                combined[i] += weight * numbers.get(values_of_words[place.start], 0)
            weight *= len(names) + 1
        return combined
