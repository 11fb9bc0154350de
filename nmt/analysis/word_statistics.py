"""Sentences in groups by length, and words in groups by frequency and case."""

import bisect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nmt.tokenizer.words import words

WIDTH = 5
"""Words between two borders of length groups."""


def tokens(line: str) -> list[str]:
    """Words and punctuation marks of a text."""
    return [
        token for word in words(line) for token in re.findall(r"\w+(?:['’.-]\w+)*|[^\w\s]", word)
    ]


def bare(word: str) -> str:
    """A word without the punctuation around it."""
    return re.sub(r"^\W+|\W+$", "", word)


@dataclass(frozen=True)
class LengthGroup:
    """Numbers of the sentences with `low` to `high` words."""

    low: int
    high: int
    sentences: Sequence[int]

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def name(self) -> str:
        return f"{self.low}–{self.high}" if self.high > self.low else str(self.low)

    def with_next(self, group: "LengthGroup") -> "LengthGroup":
        return LengthGroup(self.low, group.high, [*self.sentences, *group.sentences])


def length_groups(lines: Sequence[str], fewest: int = 1) -> list[LengthGroup]:
    """Sentences by their number of words, in ascending order. A group of fewer than `fewest` joins
    the one before it, the first the one after it."""
    members: dict[int, list[int]] = {}  # numbers of sentences by group
    for number, line in enumerate(lines):
        if words(line):
            members.setdefault((len(words(line)) - 1) // WIDTH, []).append(number)
    groups: list[LengthGroup] = []
    for step in sorted(members):
        group = LengthGroup(step * WIDTH + 1, (step + 1) * WIDTH, members[step])
        if groups and fewest > min(len(group.sentences), len(groups[-1].sentences)):
            group = groups.pop().with_next(group)
        groups.append(group)
    return groups


FREQUENCIES = ("0", "1", "2–4", "5–9", "10–99", "100–999", "1,000 or more")
BORDERS = (1, 2, 5, 10, 100, 1000)
CASES = ("lower case", "Capitalised", "UPPER CASE", "miXed", "with digits", "marks")


def frequency_class(counts: Mapping[str, int]) -> Callable[[str], str]:
    """Function that returns the member of FREQUENCIES for the count of a word."""
    return lambda word: FREQUENCIES[bisect.bisect_right(BORDERS, counts.get(word, 0))]


def case_class(word: str) -> str:
    """The member of CASES for a word."""
    if any(c.isdigit() for c in word):
        return "with digits"
    if not any(c.isalpha() for c in word):
        return "marks"
    if word.islower() or word.upper() == word.lower():
        return "lower case"
    if word.isupper() and len(word) > 1:
        return "UPPER CASE"
    # A single capital, such as "I", counts as capitalised.
    return "Capitalised" if word[0].isupper() and word[1:].lower() == word[1:] else "miXed"


@dataclass(frozen=True)
class WordAccuracy:
    """Words of a group: matches with the reference of the same sentence, words of the output, words
    of the reference."""

    right: int
    written: int
    expected: int

    @property
    def f1(self) -> float:
        """Per cent; the harmonic mean of right/written and right/expected."""
        return 200 * self.right / max(1, self.written + self.expected)


def word_accuracy(
    outputs: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    group: Callable[[str], str],
) -> dict[str, WordAccuracy]:
    """Accuracy by group of words."""
    right: Counter[str] = Counter()
    for output, reference in zip(outputs, references, strict=True):
        # Each word of the reference matches once.
        matches = Counter(output) & Counter(reference)
        right.update(map(group, matches.elements()))
    written = Counter(group(word) for output in outputs for word in output)
    expected = Counter(group(word) for reference in references for word in reference)
    return {
        name: WordAccuracy(right[name], written[name], expected[name])
        for name in {**expected, **written}
    }


def ngrams(sentence: Sequence[str], longest: int) -> Counter[tuple[str, ...]]:
    """Sequences of one to `longest` words, counted."""
    return Counter(
        tuple(sentence[i : i + n])
        for n in range(1, longest + 1)
        for i in range(len(sentence) - n + 1)
    )
