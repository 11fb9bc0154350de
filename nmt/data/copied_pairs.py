"""Copied pairs: training pairs whose source and target are the same sentence (Currey et al. 2017).

From copied pairs, a network with little data learns to copy names and numbers, and sees more text
in the target language.
"""

import logging
from dataclasses import replace
from fractions import Fraction

from nmt.data import Pairs, Splits, chained
from nmt.data.filters import Filters
from nmt.data.overlap import training_rows
from nmt.tokenizer.words import bare, words

log = logging.getLogger(__name__)


def with_copied_pairs(splits: Splits, share: float, filters: Filters) -> Splits:
    """Filters the training pairs, or each corpus of a mixture, and adds copied pairs of evenly
    spaced target sentences. The result is encoded in memory, even if the training pairs are stored
    on disk.

    splits: sentence pairs with one source text, without alignments
    share: number of copied pairs per training pair, 0 to 1
    filters: filters of the training pairs; the length filters are applied later

    Raises UserError if the filters drop all pairs.
    """

    def with_copies(pairs: Pairs) -> Pairs:
        pairs = filters.text(pairs)
        if filters.drop_held_out:
            pairs = pairs.select(training_rows(replace(splits, train=pairs), filters))
        exact = Fraction(str(share))  # a binary fraction such as 0.29 would be rounded down
        count = int(len(pairs) * exact)
        rows = [i * exact.denominator // exact.numerator for i in range(count)]
        log.info("%s: added %s copied pairs (copied_pairs=%g)", pairs.name, f"{len(rows):,}", share)
        copied = pairs.select(rows)
        return chained([pairs, replace(copied, source=copied.target)], pairs.name)

    if splits.mixture is None:
        return replace(splits, train=with_copies(splits.train))
    corpora = {name: with_copies(pairs) for name, pairs in splits.mixture.corpora.items()}
    return replace(splits, mixture=replace(splits.mixture, corpora=corpora))


def share_of_common_names(pairs: Pairs) -> float:
    """Returns the fraction of the pairs with a name or number that is the same on both sides. Words
    with a capital letter count as names."""
    common = [
        not _names(source).isdisjoint(_names(target))
        for source, target in zip(pairs.source, pairs.target, strict=True)
    ]
    return sum(common) / max(1, len(common))


def _names(line: str) -> set[str]:
    """Returns the words of a line that contain a capital letter or a digit."""
    return {
        word for word in map(bare, words(line)) if any(c.isupper() or c.isdigit() for c in word)
    }
