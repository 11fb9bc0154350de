"""Word alignments from attention weights: conversion from subwords to words, symmetrization, and
scores against a gold standard.

The weight between two words is the sum over the source word's subwords and the mean over the target
word's subwords. The weights of `</s>`, which is not a word, are kept separately.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from nmt.data.gold_links import GoldLinks
from nmt.data.links import Links

Symmetrization = Literal["intersection", "union", "grow_diag", "forward", "backward"]
NEIGHBORS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
"""Offsets (source words, target words) from an alignment link to its eight neighbours."""


@dataclass(frozen=True)
class WordAlignment:
    """Alignment weights between words. For each target word, `weights` and `to_end` together sum to
    1.

    weights: [target words, source words] weight of each source word for each target word
    to_end: [target words] weight of the source's `</s>` for each target word
    at_end: [source words] weight of each source word for the target's `</s>`
    """

    weights: np.ndarray
    to_end: np.ndarray
    at_end: np.ndarray

    def pairs(self) -> list[tuple[int, int]]:
        """Returns one pair (source word, target word) for each target word, with words numbered
        from 0.

        The source word of a pair is the one with the greatest weight.
        """
        if not self.weights.size:
            return []
        return sorted((int(s), t) for t, s in enumerate(self.weights.argmax(1)))


def by_word(
    weights: np.ndarray,
    source_words: Sequence[range],
    target_words: Sequence[range],
    sizes: tuple[int, int],
) -> np.ndarray:
    """Converts attention weights from tokens to words, [target words + </s>, source words + </s>].

    weights: attention weights between tokens, [target tokens + </s>, source tokens + </s>]; words
        in the same token share its weight
    source_words, target_words: range of words (from 0) to which each token belongs
    sizes: number of source words and number of target words
    """
    source_shares = _membership(source_words, sizes[0])  # [source pieces + 1, source words + 1]
    source_shares /= source_shares.sum(1, keepdims=True)
    target_pieces = _membership(target_words, sizes[1]).T  # [target words + 1, target pieces + 1]
    # A word without tokens has a row of zeros instead of NaN.
    target_means = target_pieces / np.maximum(1.0, target_pieces.sum(1, keepdims=True))
    return target_means @ weights @ source_shares


def _membership(piece_words: Sequence[range], word_count: int) -> np.ndarray:
    """Returns the membership matrix [tokens + </s>, words + </s>]: 1 where a token belongs to a
    word, otherwise 0.
    """
    membership = np.zeros((len(piece_words) + 1, word_count + 1))
    for piece, words in enumerate(piece_words):
        membership[piece, words.start : words.stop] = 1.0
    membership[-1, -1] = 1.0
    return membership


def merge(
    weights: np.ndarray,
    source_words: Sequence[range],
    target_words: Sequence[range],
    sizes: tuple[int, int],
) -> WordAlignment:
    """Returns the word alignment computed by `by_word`, with the weights of </s> in separate
    fields."""
    table = by_word(weights, source_words, target_words, sizes)
    return WordAlignment(weights=table[:-1, :-1], to_end=table[:-1, -1], at_end=table[-1, :-1])


def symmetrize(forward: Links, backward: Links, how: Symmetrization) -> Links:
    """Combines the word alignments of both translation directions into one (Och & Ney 2003).

    forward, backward: links of both directions, as pairs (source word, target word)
    how: `intersection`, `union`, `forward` or `backward` alone, or `grow_diag`. The method
        `grow_diag` extends the intersection by neighbouring links of the union, diagonal neighbours
        included, if their source or target word has no link yet (Koehn et al. 2003).
    """
    if how == "intersection":
        return forward & backward
    if how == "union":
        return forward | backward
    if how == "forward":
        return forward
    if how == "backward":
        return backward
    return _grow_diagonally(forward & backward, forward | backward)


def _grow_diagonally(intersection: Links, union: Links) -> Links:
    links = set(intersection)
    linked_sources = {source for source, _ in links}
    linked_targets = {target for _, target in links}
    # Each round may add neighbours of links from the round before.
    size_before = -1
    while len(links) > size_before:
        size_before = len(links)
        for source, target in sorted(links):
            for source_step, target_step in NEIGHBORS:
                link = (source + source_step, target + target_step)
                is_linked = link[0] in linked_sources and link[1] in linked_targets
                if link in union and not is_linked:
                    links.add(link)
                    linked_sources.add(link[0])
                    linked_targets.add(link[1])
    return frozenset(links)


class AlignmentScores(NamedTuple):
    """Scores of word alignments against a gold standard, from 0 to 1 (Och & Ney 2003, section 7).

    precision: fraction of the predicted links that are possible links
    recall: fraction of the sure links that are predicted
    error_rate: alignment error rate; lower is better
    """

    precision: float
    recall: float
    error_rate: float


def alignment_scores(
    found_sure: int, found_possible: int, num_links: int, num_sure: int
) -> AlignmentScores:
    """Returns the alignment scores of a corpus from its counts of links.

    For predicted links A, sure links S and possible links P ⊇ S, the precision is |A∩P| / |A|, the
    recall |A∩S| / |S|, and the error rate 1 − (|A∩S| + |A∩P|) / (|A| + |S|).
    Precision without predicted links and recall without sure links are 1.

    found_sure: |A∩S|
    found_possible: |A∩P|
    num_links: |A|
    num_sure: |S|
    """
    total = num_links + num_sure
    return AlignmentScores(
        found_possible / num_links if num_links else 1.0,
        found_sure / num_sure if num_sure else 1.0,
        1 - (found_sure + found_possible) / total if total else 0.0,
    )


def count_links(alignments: Sequence[Links], gold: Sequence[GoldLinks]) -> list[int]:
    """Returns the counts of links in the order of the arguments of `alignment_scores`.

    alignments: predicted links of each sentence pair
    gold: gold links of each sentence pair
    """
    counts = [0, 0, 0, 0]
    for links, gold_links in zip(alignments, gold, strict=True):
        possible = gold_links.possible | gold_links.sure
        sets = (links & gold_links.sure, links & possible, links, gold_links.sure)
        counts = [count + len(of_pair) for count, of_pair in zip(counts, sets, strict=True)]
    return counts
