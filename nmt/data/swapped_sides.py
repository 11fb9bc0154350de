"""Detection of sentence pairs with exchanged source and target, by the log-odds of their words."""

import logging
import math
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from nmt.data import Pairs

log = logging.getLogger(__name__)
SAMPLE = 5000
"""Maximum number of pairs that are checked, at equal distances in the corpus."""
MARGIN = 4.0
"""Difference of the log-odds of target and source above which a pair counts as exchanged.

With margin 0, noisy pairs in one language would count.
"""
SHARE = 0.01
"""Fraction of exchanged pairs above which a warning is logged."""


def swapped_rows(pairs: Pairs) -> list[int]:
    """Returns the indices of the sampled pairs whose source and target seem to be exchanged.

    The log-odds of a word are log (s + ½) / (t + ½), where s and t are the numbers of sampled
    source and target lines with the word. The sum of the log-odds over the words of a line is
    positive in the source language, and negative in the target language.
    """
    rows = range(0, len(pairs), math.ceil(len(pairs) / SAMPLE) or 1)
    source, target = (
        [{*text[i].lower().split()} for i in rows] for text in (pairs.source, pairs.target)
    )
    source_counts = Counter(chain.from_iterable(source))
    target_counts = Counter(chain.from_iterable(target))

    def log_odds(words: Iterable[str]) -> float:
        return sum(math.log((source_counts[w] + 0.5) / (target_counts[w] + 0.5)) for w in words)

    return [
        row
        for row, source_words, target_words in zip(rows, source, target, strict=True)
        if log_odds(target_words) - log_odds(source_words) > MARGIN
    ]


def warn_of_swapped_sides(pairs: Pairs) -> None:
    """Logs a warning if source and target seem to be exchanged in some pairs."""
    rows = swapped_rows(pairs)
    sampled = min(SAMPLE, len(pairs))
    if len(rows) > SHARE * sampled:
        log.warning(
            "%s: source and target seem to be exchanged in %s of about %s sampled pairs, first in "
            'pair %s, "%s"; check the columns of the training data',
            pairs.name,
            f"{len(rows):,}",
            f"{sampled:,}",
            f"{rows[0] + 1:,}",
            pairs.source[rows[0]][:40],
        )
