"""What a line of the source holds: a text; several texts; a text and factors, a value for each of its words; a picture; or
a text and a picture.

    A dog runs .⇥Un chien court .        two sources, a tab between them (Zoph & Knight 2016)
    A dog runs .⇥DT NN VBZ .             a text and one factor (Sennrich & Haddow 2016)
    dog.jpg                              the name of a picture (nmt/data/pictures.py; Xu et al. 2015)
    A dog runs .⇥dog.jpg                 a text and a picture; no name: no picture

In ids, several texts stand one after another, with EOS between them. A piece p and its factors are one number, whose digits
they are: p + V (f₁ + F₁ (f₂ + …)). The values of a factor are numbered from 1; 0 stands for the end of a sentence, and for
values that training did not have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS

TAB = "\t"
PICTURE = 32
"""A picture counts as so many tokens where lengths count: for the longest caption, and for what is searched together."""
LARGEST = 2**32
"""Ids are kept as unsigned integers of 32 bits."""


class Pictured(list[int]):
    """The ids of a line with a picture, whose name travels with them. It is false only if there is neither."""

    def __init__(self, ids: Iterable[int], picture: str) -> None:
        super().__init__(ids)
        self.picture = picture

    def __bool__(self) -> bool:
        return bool(self.picture) or len(self) > 0


def picture_of(ids: Sequence[int]) -> str:
    """The name of a line's picture, "" if it has none."""
    return ids.picture if isinstance(ids, Pictured) else ""


def length_of(ids: Sequence[int]) -> int:
    """A line's length in tokens, its picture counted too."""
    return len(ids) + PICTURE * bool(picture_of(ids))


@dataclass(frozen=True)
class Columns:
    """`sources` texts; `factors`: the values of each; `names` of all columns, for messages; `picture`: the last column names
    one. Raises ValueError if there are several texts, and factors or a picture too."""

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
            raise ValueError("pictures stand beside a single text without factors, or alone")

    @classmethod
    def of(
        cls,
        lines: Iterable[str],
        sources: int,
        factors: int,
        names: Sequence[str] = (),
        picture: bool = False,
    ) -> Columns:
        """The columns of a training text, with the values that its factors have there."""
        seen: list[set[str]] = [set() for _ in range(factors)]
        for line in lines if factors else ():
            for values, column in zip(seen, line.split(TAB)[1:], strict=True):
                values.update(column.split())
        return cls(sources, tuple(tuple(sorted(values)) for values in seen), tuple(names), picture)

    @property
    def plain(self) -> bool:
        return self.number == 1 and not self.picture

    @property
    def number(self) -> int:
        return self.sources + len(self.factors) + self.picture

    @property
    def described(self) -> str:
        """What a line holds, in words."""
        if self.plain:
            return "one text"
        if self.picture:
            return "a text and the name of a picture" if self.sources else "the name of a picture"
        named = f" ({', '.join(self.names)})" if self.names else ""
        if self.sources > 1:
            return f"{self.sources} sources{named}"
        return f"a text and {len(self.factors)} factor{'s' * (len(self.factors) > 1)}{named}"

    @property
    def radices(self) -> list[int]:
        """How many values each factor has, 0 included."""
        return [len(values) + 1 for values in self.factors]

    def size(self, pieces: int) -> int:
        """How many ids there are with so many pieces. Raises UserError if they are too many."""
        found = pieces * math.prod(self.radices)
        if found > LARGEST:
            raise UserError(
                f"data.factors: {found:,} combinations of pieces and values; leave out the largest factors"
            )
        return found

    def split(self, line: str) -> list[str]:
        """The columns of a line; all empty if it holds no word. Raises UserError if there are not as many as in training,
        or if a factor has not a value for each word."""
        if self.plain:
            return [line]
        if not line.strip():
            return [""] * self.number
        parts = line.split(TAB)
        if len(parts) != self.number:
            wanted = f"the model reads {self.described}, with a tab between them"
            raise UserError(
                f'"{line[:40]}": {len(parts)} column{"s" * (len(parts) > 1)}, but {wanted}'
            )
        if self.factors:
            check_values(parts, self.names)
        return parts

    def words(self, line: str) -> str:
        """The part of a line that is text."""
        if not self.sources:
            return ""
        return line.split(TAB)[0] if self.factors or self.picture else line

    def picture_in(self, line: str) -> str:
        """The name of a line's picture, "" if it has none."""
        return self.split(line)[-1].strip() if self.picture else ""

    def joined(self, texts: Sequence[list[int]]) -> list[int]:
        """The ids of a line from those of its texts; nothing if all are empty."""
        if len(texts) == 1 or not any(texts):
            return texts[0]
        return [i for k, ids in enumerate(texts) for i in ([EOS, *ids] if k else ids)]

    def texts(self, ids: Sequence[int]) -> list[list[int]]:
        """The inverse of `joined`."""
        found: list[list[int]] = [[]]
        for i in ids:
            if i == EOS:
                found.append([])
            else:
                found[-1].append(i)
        return found

    def shortened(self, ids: list[int], most: int) -> list[int]:
        """At most `most` ids, of several texts equally many of each."""
        if len(ids) <= most or self.sources == 1:
            return Pictured(ids[:most], picture_of(ids)) if self.picture else ids[:most]
        each = max(1, most // self.sources)
        return self.joined([text[:each] for text in self.texts(ids)])

    def unknown(self, values: Sequence[str]) -> set[str]:
        """Values of a line that training did not have; `values`: its columns of factors."""
        return {
            v
            for names, column in zip(self.factors, values, strict=True)
            for v in {*column.split()} - {*names}
        }

    def with_factors(
        self, ids: Sequence[int], places: Sequence[range], values: Sequence[str], pieces: int
    ) -> list[int]:
        """Pieces with the factors of their words. `places`: which words each is a part of; `values`: a column for each
        factor, a value for each word; `pieces`: V."""
        digits, weight = [0] * len(ids), pieces
        for names, column in zip(self.factors, values, strict=True):
            numbers, of_word = {name: i for i, name in enumerate(names, 1)}, column.split()
            for at, place in enumerate(places):
                digits[at] += weight * numbers.get(of_word[place.start], 0)
            weight *= len(names) + 1
        return [i + digit for i, digit in zip(ids, digits, strict=True)]


def check_values(parts: Sequence[str], names: Sequence[str] = ()) -> None:
    """Raises UserError unless all columns of a line have as many words."""
    words = len(parts[0].split())
    for k, column in enumerate(parts[1:], 1):
        values = len(column.split())
        if values != words:
            few = f"{values} value{'s' * (values != 1)} of {names[k] if len(names) > k else f'factor {k}'}"
            raise UserError(f'"{parts[0][:40]}" has {words} words between spaces, but {few}')
