"""Sentences in groups by their length, and words in groups by their frequency and case."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nmt.tokenizer.words import words

Item = TypeVar("Item", bound=Hashable)

WIDTH = 5
"""Words between two borders of groups of lengths."""


def tokens(line: str) -> list[str]:
    """The words of a text, and its punctuation marks, each alone."""
    return [
        token for word in words(line) for token in re.findall(r"\w+(?:['’.-]\w+)*|[^\w\s]", word)
    ]


def bare(word: str) -> str:
    """A word without the punctuation around it."""
    return re.sub(r"^\W+|\W+$", "", word)


@dataclass(frozen=True)
class Bucket:
    """Places of some sentences, those of `low` to `high` words."""

    low: int
    high: int
    places: Sequence[int]

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def name(self) -> str:
        return f"{self.low}–{self.high}" if self.high > self.low else str(self.low)


def length_buckets(lines: Sequence[str], fewest: int = 1, width: int = WIDTH) -> list[Bucket]:
    """Sentences by their number of words, from short to long; groups of fewer than `fewest` join the one before."""
    lengths = [len(words(line)) for line in lines]
    found: list[Bucket] = []
    for low in range(1, max(lengths, default=0) + 1, width):
        places = [i for i, length in enumerate(lengths) if low <= length < low + width]
        if not places:
            continue
        if found and len(places) < fewest:
            before = found.pop()
            found.append(Bucket(before.low, low + width - 1, [*before.places, *places]))
        else:
            found.append(Bucket(low, low + width - 1, places))
    if len(found) > 1 and len(found[0].places) < fewest:
        first, second = found[:2]
        found[:2] = [Bucket(first.low, second.high, [*first.places, *second.places])]
    return found


FREQUENCIES = ("0", "1", "2–4", "5–9", "10–99", "100–999", "1,000 or more")
_BORDERS = (1, 2, 5, 10, 100, 1000)
CASES = ("lower case", "Capitalised", "UPPER CASE", "miXed", "with digits", "marks")


def frequency_class(counts: Mapping[str, int]) -> Callable[[str], str]:
    """The member of FREQUENCIES that says how often a word was counted."""
    return lambda word: FREQUENCIES[bisect.bisect_right(_BORDERS, counts.get(word, 0))]


def case_class(word: str) -> str:
    """The member of CASES that a word is."""
    if any(c.isdigit() for c in word):
        return "with digits"
    if not any(c.isalpha() for c in word):
        return "marks"
    if word.islower() or word.upper() == word.lower():
        return "lower case"
    if word.isupper() and len(word) > 1:
        return "UPPER CASE"
    return "Capitalised" if word[0].isupper() and word[1:].lower() == word[1:] else "miXed"


@dataclass(frozen=True)
class Accuracy:
    """How often words of a group were right: matches with the reference in the same sentence, words of the output, words of
    the reference."""

    right: int
    said: int
    wanted: int

    @property
    def f1(self) -> float:
        """Per cent; the harmonic mean of right/said and right/wanted."""
        return 200 * self.right / (self.said + self.wanted) if self.said + self.wanted else 0.0


def word_accuracy(
    outputs: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    group: Callable[[str], str],
) -> dict[str, Accuracy]:
    """By groups of words."""
    right, said, wanted = dict[str, int](), dict[str, int](), dict[str, int]()
    for output, reference in zip(outputs, references, strict=True):
        left = _counted(reference)
        for word in reference:
            wanted[group(word)] = wanted.get(group(word), 0) + 1
        for word in output:
            said[group(word)] = said.get(group(word), 0) + 1
            if left.get(word, 0):
                left[word] -= 1
                right[group(word)] = right.get(group(word), 0) + 1
    return {
        key: Accuracy(right.get(key, 0), said.get(key, 0), wanted.get(key, 0))
        for key in {**wanted, **said}
    }


def _counted(items: Iterable[Item]) -> dict[Item, int]:
    found: dict[Item, int] = {}
    for item in items:
        found[item] = found.get(item, 0) + 1
    return found


def ngrams(sentence: Sequence[str], longest: int) -> dict[tuple[str, ...], int]:
    """Sequences of one to `longest` words, counted."""
    return _counted(
        tuple(sentence[i : i + n])
        for n in range(1, longest + 1)
        for i in range(len(sentence) - n + 1)
    )
