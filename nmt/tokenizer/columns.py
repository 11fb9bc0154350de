"""Tab-separated columns of a source line, and their encoding as token ids.

    A dog runs .                         a text
    A dog runs .⇥Un chien court .        two source texts (Zoph & Knight 2016)
    A dog runs .⇥DT NN VBZ .             a text and one factor (Sennrich & Haddow 2016)
    dog.jpg                              the file name of an image (Xu et al. 2015)
    A dog runs .⇥dog.jpg                 a text and an image; the name may be empty

Several texts are encoded as one id sequence with EOS between them. A subword with id p and factor
values f₁, f₂ … becomes the single id p + V (f₁ + F₁ (f₂ + …)). V is the vocabulary size and F₁ the
number of values of the first factor. Factor values are numbered from 1; 0 stands for EOS and for
values that are not in the training data.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS

TAB = "\t"
PICTURE = 32
"""Length of an image, in tokens, for length limits and batch sizes."""
LARGEST = 2**32
"""Number of different ids that unsigned 32-bit integers can represent."""


@dataclass(frozen=True)
class Pictured(Sequence[int]):
    """Token ids and image of a line. A line with neither text nor image name is false in a Boolean
    context.

    ids: token ids of the text
    picture: file name of the image; "" without an image
    """

    ids: list[int]
    picture: str

    def __len__(self) -> int:
        return len(self.ids)

    def __bool__(self) -> bool:
        return bool(self.picture or self.ids)

    def __getitem__(self, i: Any, /) -> Any:
        return self.ids[i]


def picture_of(ids: Sequence[int]) -> str:
    """Returns the image name of an encoded line; "" if the line has no image."""
    return ids.picture if isinstance(ids, Pictured) else ""


def length_of(ids: Sequence[int]) -> int:
    """Returns the length of an encoded line in tokens, including its image."""
    return len(ids) + PICTURE * bool(picture_of(ids))


@dataclass(frozen=True)
class Columns:
    """Column layout of the source lines that a model reads.

    sources: number of texts per line
    factors: values of each factor column
    names: names of all columns, for messages
    picture: whether the last column is an image name

    Several texts, factors and an image cannot be combined with each other.

    Raises ValueError for such a combination, or if there is neither a text nor an image.
    """

    sources: int = 1
    factors: tuple[tuple[str, ...], ...] = ()
    names: tuple[str, ...] = ()
    picture: bool = False

    def __post_init__(self) -> None:
        num_kinds = (self.sources > 1) + bool(self.factors) + self.picture
        if num_kinds > 1 or not (self.sources or self.picture):
            raise ValueError(
                "data.factors: cannot be combined with several source texts or an image; leave "
                "data.factors out, or set data.source to one text column"
            )

    @property
    def plain(self) -> bool:
        """Whether a source line is a single text, without factors or an image."""
        return self.number == 1 and not self.picture

    @property
    def number(self) -> int:
        """Number of columns of a source line."""
        return self.sources + len(self.factors) + self.picture

    @property
    def described(self) -> str:
        """Description of the source columns, for messages."""
        if self.plain:
            return "one text"
        if self.picture:
            return "a text and an image name" if self.sources else "an image name"
        names = f" ({', '.join(self.names)})" if self.names else ""
        if self.sources > 1:
            return f"{self.sources} sources{names}"
        return f"a text and {len(self.factors)} factor{'s' * (len(self.factors) > 1)}{names}"

    @property
    def radices(self) -> list[int]:
        """Number of values of each factor, including the reserved value 0."""
        return [len(values) + 1 for values in self.factors]

    def size(self, pieces: int) -> int:
        """Returns the number of distinct ids. An id encodes a subword and its factor values.

        pieces: number of subwords in the vocabulary

        Raises UserError if the ids do not fit into 32-bit integers.
        """
        ids = pieces * math.prod(self.radices)
        if ids > LARGEST:
            raise UserError(
                f"data.factors: {ids:,} combinations of subwords and factor values, more than the "
                f"maximum of {LARGEST:,}; leave out the factors with the most values"
            )
        return ids

    def split(self, line: str) -> list[str]:
        """Returns the columns of a line; all columns are empty if the line is blank.

        Raises UserError if the number of columns differs from the training data, or if a factor
        does not have one value per word.
        """
        if self.plain:
            return [line]
        if not line.strip():
            return [""] * self.number
        columns = line.split(TAB)
        if len(columns) != self.number:
            raise UserError(
                f'source line "{line[:40]}" has {len(columns)} '
                f"column{'s' * (len(columns) > 1)}; the model expects {self.described}, "
                "separated by tabs"
            )
        num_words = len(columns[0].split())
        for k, column in enumerate(columns[1:], 1) if self.factors else ():
            num_values = len(column.split())
            if num_values != num_words:
                name = self.names[k] if len(self.names) > k else f"factor {k}"
                raise UserError(
                    f'source line "{columns[0][:40]}" has {num_words} space-separated words, but '
                    f"{num_values} value{'s' * (num_values != 1)} of {name}"
                )
        return columns

    def words(self, line: str) -> str:
        """Returns the text column of a line."""
        if not self.sources:
            return ""
        return line.split(TAB)[0] if self.factors or self.picture else line

    def picture_in(self, line: str) -> str:
        """Returns the image name of a line; "" if the line has no image."""
        return self.split(line)[-1].strip() if self.picture else ""

    def joined(self, texts: Sequence[list[int]]) -> list[int]:
        """Concatenates the ids of several texts, separated by EOS; no ids if all texts are
        empty."""
        ids = [i for text in texts for i in (EOS, *text)]  # the leading EOS is dropped below
        return ids[1:] if any(texts) else []

    def texts(self, ids: Sequence[int], separator: int = EOS) -> list[list[int]]:
        """Splits the ids of a line into the ids of its texts; the inverse of `joined`.

        separator: id between two texts
        """
        # Positions of the separator, plus one before the first id and one after the last id.
        ends = [-1, *(n for n, i in enumerate(ids) if i == separator), len(ids)]
        return [list(ids[begin + 1 : end]) for begin, end in itertools.pairwise(ends)]

    def shortened(self, ids: Sequence[int], most: int) -> Sequence[int]:
        """Truncates a source line to `most` ids, separators not counted; several texts share the
        limit equally."""
        if isinstance(ids, Pictured):  # an image has no ids
            return replace(ids, ids=ids.ids[:most])
        if len(ids) <= most or self.sources == 1:
            return ids[:most]
        # Truncating the joined ids would drop the last texts.
        share = max(1, most // self.sources)
        return self.joined([text[:share] for text in self.texts(ids)])

    def unknown(self, values: Sequence[str]) -> set[str]:
        """Returns the factor values of a line that are not in the training data."""
        columns = zip(self.factors, values, strict=True)
        return set().union(*({*column.split()}.difference(names) for names, column in columns))

    def with_factors(
        self, ids: Sequence[int], places: Sequence[range], values: Sequence[str], pieces: int
    ) -> list[int]:
        """Returns the ids of subwords combined with the factor values of their words.

        ids: subword ids of the text
        places: range of word indices that each subword covers
        values: factor columns, each with one value per word
        pieces: vocabulary size V
        """
        combined = list(ids)
        weight = pieces  # place value of the factor: V, V F₁, V F₁ F₂ …
        for names, column in zip(self.factors, values, strict=True):
            numbers = {name: number for number, name in enumerate(names, 1)}
            values_of_words = column.split()
            # A subword that covers several words has the factors of the first word.
            for i, place in enumerate(places):
                combined[i] += weight * numbers.get(values_of_words[place.start], 0)
            weight *= len(names) + 1
        return combined
