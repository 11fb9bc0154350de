"""Detection of sentence pairs with swapped source and target, and of input that is already in the
target language. Both compare how often a word occurs on the source side and on the target side of
the training text.
"""

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from nmt.data import Pairs, Splits
from nmt.tokenizer.words import bare, words

log = logging.getLogger(__name__)
SAMPLE = 5000
"""Maximum number of training pairs in the sample, which is evenly spaced over the corpus."""
HELD_OUT_SAMPLE = 300
"""Maximum number of pairs in the sample of a validation or test set."""
MARGIN = 4.0
"""Margin of the detection of swapped pairs. A pair counts as swapped if the log-odds sum (see
`SideCounts`) of its target line exceeds that of its source line by more than the margin.

With margin 0, pairs whose two sides are in the same language would count too.
"""
SHARE = 0.01
"""Fraction of swapped pairs in the training set above which a warning is logged."""
HELD_OUT_SHARE = 0.5
"""Fraction of swapped pairs in a validation or test set above which a warning is logged."""
TYPICAL_WORDS = 100
"""Maximum number of typical words per language that a checkpoint contains.

A typical word occurs almost only in the lines of one side of the training text.
"""
LEAST_ODDS = 20.0
"""Minimum ratio between the numbers of sampled lines that contain a word on one side (source or
target) and on the opposite side, for the word to be typical of the first side.
"""
LEAST_COUNT = 3
"""Minimum number of sampled lines of a side that contain a word, for the word to be typical of the
side.
"""
INPUT_SAMPLE = 300
"""Maximum number of input lines that are checked for words of the target language."""
LEAST_MATCHES = 5
"""Minimum number of words typical of the target language in input that counts as text in the target
language.
"""
LEAST_RATIO = 10
"""Minimum ratio of words typical of the target language to words typical of the source language, in
input that counts as text in the target language.
"""
LEAST_COVERAGE = 0.15
"""Minimum fraction of words typical of the target language in input that counts as text in the
target language.

Input in a third language contains fewer of these words.
"""


class SideCounts:
    """For each word, the number of sampled source lines and target lines of the training text that
    contain the word.

    pairs: training pairs; those with equal source and target are ignored

    The log-odds of a word are log (s + ½) / (t + ½), where s and t are the numbers of source and
    target lines with the word. The sum of the log-odds over the words of a line is positive in the
    source language, and negative in the target language.
    """

    def __init__(self, pairs: Pairs) -> None:
        rows = [row for row in sampled(pairs, SAMPLE) if pairs.source[row] != pairs.target[row]]
        self.source, self.target = (
            Counter(chain.from_iterable(_distinct(text[row]) for row in rows))
            for text in (pairs.source, pairs.target)
        )

    def log_odds(self, line: str) -> float:
        """Returns the sum of the log-odds of the words of a line."""
        odds = ((self.source[w] + 0.5) / (self.target[w] + 0.5) for w in _distinct(line))
        return sum(map(math.log, odds))

    def swapped(self, pairs: Pairs, rows: Iterable[int]) -> list[int]:
        """Returns the indices of the sentence pairs whose source and target seem to be swapped."""
        return [
            row
            for row in rows
            if self.log_odds(pairs.target[row]) - self.log_odds(pairs.source[row]) > MARGIN
        ]

    def typical(self) -> dict[str, list[str]]:
        """Returns the typical words of the sides `source` and `target`, the most frequent words
        first.

        A typical word occurs almost only in the lines of one side.
        """
        sides = {"source": (self.source, self.target), "target": (self.target, self.source)}
        return {name: _typical(*counts) for name, counts in sides.items()}


def sampled(pairs: Pairs, size: int) -> range:
    """Returns the indices of an evenly spaced sample of at most `size` pairs."""
    return range(0, len(pairs), math.ceil(len(pairs) / size) or 1)


def _distinct(line: str) -> set[str]:
    """Returns the distinct words of a line, without punctuation."""
    return {bare(word) for word in words(line.lower())} - {""}


def _typical(counts: Counter[str], other_counts: Counter[str]) -> list[str]:
    """Returns the typical words of one side (source or target), the most frequent word first."""
    frequent = sorted(counts, key=lambda word: (-counts[word], word))
    typical = [
        word
        for word in frequent
        if counts[word] >= LEAST_COUNT
        and counts[word] + 0.5 >= LEAST_ODDS * (other_counts[word] + 0.5)
        and not word.isdigit()
    ]
    return typical[:TYPICAL_WORDS]


def is_in_target_language(lines: Sequence[str], typical: Mapping[str, Collection[str]]) -> bool:
    """Returns whether input lines seem to be in the target language of a model.

    lines: source lines to translate
    typical: typical words of the sides `source` and `target` of the model's training text
    """
    if not typical:
        return False
    counts = Counter(word for line in lines[:INPUT_SAMPLE] for word in _distinct(line))
    num_source = sum(counts[word] for word in typical["source"])
    num_target = sum(counts[word] for word in typical["target"])
    least = max(LEAST_MATCHES, LEAST_RATIO * num_source, LEAST_COVERAGE * counts.total())
    return num_target >= least


def warn_of_swapped_sides(splits: Splits, counts: SideCounts) -> None:
    """Logs a warning if source and target seem to be swapped in more than a fraction SHARE of the
    training pairs, or in more than HELD_OUT_SHARE of a validation or test set.

    splits: training, validation and test sets
    counts: word counts of the training pairs
    """
    pairs = splits.train
    rows = sampled(pairs, SAMPLE)
    swapped = counts.swapped(pairs, rows)
    if len(swapped) > SHARE * len(rows):
        log.warning(
            "%s: source and target seem to be swapped in %s of about %s checked pairs (first: "
            '%s"%s"); check the columns of the training data',
            pairs.name,
            f"{len(swapped):,}",
            f"{len(rows):,}",
            # A store has no dropped pairs, so its pair numbers differ from those of the file.
            f"pair {swapped[0] + 1:,}, " if pairs.store is None else "",
            pairs.source[swapped[0]][:40],
        )
    for part in (splits.validation, *splits.more_validation.values(), splits.test):
        rows = sampled(part, HELD_OUT_SAMPLE) if part is not None else range(0)
        if part is not None and len(counts.swapped(part, rows)) > HELD_OUT_SHARE * len(rows):
            log.warning(
                "%s: source and target seem to be swapped, compared with the training data "
                '(first source line: "%s"); check the columns of the data sets',
                part.name,
                part.source[0][:40],
            )
