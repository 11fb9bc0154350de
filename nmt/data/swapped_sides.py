"""Detection of sentence pairs with exchanged source and target, and of input in the target
language, by the words of both sides of the training text."""

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from nmt.data import Pairs, Splits
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)
SAMPLE = 5000
"""Maximum number of training pairs that are sampled, at equal distances in the corpus."""
HELD_OUT_SAMPLE = 300
"""Maximum number of sampled pairs of a validation or test set."""
MARGIN = 4.0
"""Difference of the log-odds of target and source above which a pair counts as exchanged.

With margin 0, noisy pairs in one language would count.
"""
SHARE = 0.01
"""Fraction of exchanged pairs in the training set above which a warning is logged."""
HELD_OUT_SHARE = 0.5
"""Fraction of exchanged pairs of a validation or test set above which a warning is logged."""
TYPICAL_WORDS = 100
"""Maximum number of typical words per language that a checkpoint contains.

A typical word occurs almost only in the lines of one side of the training text.
"""
LEAST_ODDS = 20.0
"""Minimum odds that a word belongs to one side (source or target), not to the opposite side, for
the word to be typical of its side.
"""
LEAST_COUNT = 3
"""Minimum number of sampled lines in which a typical word must occur."""
INPUT_SAMPLE = 300
"""Maximum number of input lines that are checked for words of the target language."""
LEAST_MATCHES = 5
"""Minimum number of input words typical of the target language, for a warning."""
LEAST_RATIO = 10
"""Minimum ratio of input words typical of the target language to words typical of the source
language, for a warning.
"""
LEAST_COVERAGE = 0.15
"""Minimum fraction of input words that are typical of the target language, for a warning.

Input in a third language shares fewer words with the target language.
"""
PUNCTUATION = ".,!?;:\"'()"
"""Characters that are removed from both ends of a word."""


class SideCounts:
    """For each word, the number of sampled source lines and target lines of the training text that
    contain the word.

    pairs: training pairs

    The log-odds of a word are log (s + ½) / (t + ½), where s and t are the numbers of source and
    target lines with the word. The sum of the log-odds over the words of a line is positive in the
    source language, and negative in the target language.
    """

    def __init__(self, pairs: Pairs) -> None:
        rows = sampled(pairs, SAMPLE)
        self.source, self.target = (
            Counter(chain.from_iterable(_distinct(text[row]) for row in rows))
            for text in (pairs.source, pairs.target)
        )

    def log_odds(self, line: str) -> float:
        """Returns the sum of the log-odds of the words of a line."""
        odds = ((self.source[w] + 0.5) / (self.target[w] + 0.5) for w in _distinct(line))
        return sum(map(math.log, odds))

    def exchanged(self, pairs: Pairs, rows: Iterable[int]) -> list[int]:
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
    """Returns the indices of a sample of at most `size` pairs, at equal distances."""
    return range(0, len(pairs), math.ceil(len(pairs) / size) or 1)


def _distinct(line: str) -> set[str]:
    """Returns the distinct words of a line, without punctuation."""
    return {word.strip(PUNCTUATION) for word in words(line.lower())} - {""}


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
    typical: typical words of both sides of the model's training text
    """
    if not typical:
        return False
    counts = Counter(word for line in lines[:INPUT_SAMPLE] for word in _distinct(line))
    num_source = sum(counts[word] for word in typical["source"])
    num_target = sum(counts[word] for word in typical["target"])
    least = max(LEAST_MATCHES, LEAST_RATIO * num_source, LEAST_COVERAGE * counts.total())
    return num_target >= least


def warn_of_swapped_sides(splits: Splits, counts: SideCounts) -> None:
    """Logs a warning if source and target seem to be exchanged in some training pairs, or in most
    pairs of a validation or test set in comparison with the training pairs.

    splits: training, validation and test sets
    counts: word counts of the training pairs
    """
    pairs = splits.train
    rows = sampled(pairs, SAMPLE)
    exchanged = counts.exchanged(pairs, rows)
    if len(exchanged) > SHARE * len(rows):
        log.warning(
            "%s: source and target seem to be exchanged in %s of about %s checked pairs, "
            'first in pair %s, "%s"; check the columns of the training data',
            pairs.name,
            f"{len(exchanged):,}",
            f"{len(rows):,}",
            f"{exchanged[0] + 1:,}",
            pairs.source[exchanged[0]][:40],
        )
    for part in (splits.validation, *splits.more_validation.values(), splits.test):
        rows = sampled(part, HELD_OUT_SAMPLE) if part is not None else range(0)
        if part is not None and len(counts.exchanged(part, rows)) > HELD_OUT_SHARE * len(rows):
            log.warning(
                "%s: source and target seem to be exchanged, compared with the training data "
                '(first source line: "%s"); check the columns of the data sets',
                part.name,
                part.source[0][:40],
            )
