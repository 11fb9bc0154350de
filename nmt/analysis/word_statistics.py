"""Groups sentences by length, and words by frequency and by case."""

import bisect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nmt.tokenizer.words import MARKS, words

TOKEN = re.compile(rf"[\w{MARKS}]+(?:['’.-][\w{MARKS}]+)*|[^\w\s]")
"""Pattern of a word or a punctuation mark."""
WIDTH = 5
"""Width of a length group: number of different sentence lengths, in words."""


def count_words(line: str) -> int:
    """Returns the number of words in a text."""
    return len(words(line))


def tokens(line: str) -> list[str]:
    """Returns the words and punctuation marks of a text."""
    return [token for word in words(line) for token in TOKEN.findall(word)]


@dataclass(frozen=True)
class LengthGroup:
    """Group of sentences of similar length.

    low: minimum sentence length in words
    high: maximum sentence length in words
    sentences: indices of the sentences
    """

    low: int
    high: int
    sentences: Sequence[int]

    @property
    def name(self) -> str:
        return f"{self.low}–{self.high}" if self.high > self.low else str(self.low)


def length_groups(lines: Sequence[str], fewest: int = 1) -> list[LengthGroup]:
    """Groups sentences by length in words, in ascending order. Empty lines belong to no group.

    lines: one sentence per line
    fewest: minimum size of a group; a smaller group is merged with the preceding group
    """
    members: dict[int, list[int]] = {}
    for number, line in enumerate(lines):
        members.setdefault((count_words(line) - 1) // WIDTH, []).append(number)
    groups: list[LengthGroup] = []
    for step in sorted(members.keys() - {-1}):
        group = LengthGroup(step * WIDTH + 1, (step + 1) * WIDTH, members[step])
        if groups and fewest > min(len(group.sentences), len(groups[-1].sentences)):
            shorter = groups.pop()  # too few sentences for a separate group
            merged = [*shorter.sentences, *group.sentences]
            group = LengthGroup(shorter.low, group.high, merged)
        groups.append(group)
    return groups


FREQUENCIES = ("0", "1", "2–4", "5–9", "10–99", "100–999", "1,000 or more")
"""Names of the word frequency classes, which are ranges of the number of occurrences."""
BORDERS = (1, 2, 5, 10, 100, 1000)
"""Lower bounds of the word frequency classes, in occurrences. The first class, 0 occurrences, needs
no bound."""
CASES = ("lower case", "Capitalised", "UPPER CASE", "miXed", "with digits", "marks")
"""Names of the case classes of words: lower case, capitalised, upper case and others."""


def frequency_class(counts: Mapping[str, int]) -> Callable[[str], str]:
    """Returns a function from a word to its frequency class, a member of FREQUENCIES.

    counts: number of occurrences of each word
    """
    return lambda word: FREQUENCIES[bisect.bisect_right(BORDERS, counts.get(word, 0))]


def case_class(word: str) -> str:
    """Returns the case class of a word, a member of CASES."""
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
    """Accuracy of a system's output for a group of words.

    right: number of output words that match a word of the sentence's reference
    written: number of output words
    expected: number of reference words
    """

    right: int
    written: int
    expected: int

    @property
    def f1(self) -> float:
        """F1 score in percent: harmonic mean of precision (right / written) and recall (right /
        expected)."""
        return 200 * self.right / max(1, self.written + self.expected)


def word_accuracy(
    outputs: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    group: Callable[[str], str],
) -> dict[str, WordAccuracy]:
    """Returns the word accuracy of the outputs for each group of reference words.

    outputs: words of each output
    references: words of each reference
    group: function that returns the group of a word
    """
    right: Counter[str] = Counter()
    for output, reference in zip(outputs, references, strict=True):
        # Each word of the reference matches at most once.
        matches = Counter(output) & Counter(reference)
        right.update(map(group, matches.elements()))
    written = Counter(group(word) for output in outputs for word in output)
    expected = Counter(group(word) for reference in references for word in reference)
    return {name: WordAccuracy(right[name], written[name], expected[name]) for name in expected}
