"""Word alignments: computed from attention between pieces, combined from two directions, and
compared with a gold standard.

The weight between two words is the sum over the source word's pieces and the mean over the target
word's. The weights to and from `</s>` are kept apart: they show where the translation begins and
ends, not which word translates which.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from nmt.data.links import Links

Symmetrization = Literal["intersection", "union", "grow_diag", "forward", "backward"]
NEIGHBORS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
"""Steps from a link to its neighbours in the table of source and target words."""


@dataclass(frozen=True)
class WordAlignment:
    """Weights between words; each row of `weights` plus its `to_end` sums to 1.

    weights: [target words, source words]
    to_end: [target words] weight of the source's `</s>`
    at_end: [source words] weight while the target's `</s>` is predicted
    """

    weights: np.ndarray
    to_end: np.ndarray
    at_end: np.ndarray

    def pairs(self) -> list[tuple[int, int]]:
        """(source word, target word): each target word with the source word of greatest weight."""
        if not self.weights.size:
            return []
        return sorted((int(s), t) for t, s in enumerate(self.weights.argmax(1)))


def by_word(
    weights: np.ndarray,
    source_words: Sequence[range],
    target_words: Sequence[range],
    sizes: tuple[int, int],
) -> np.ndarray:
    """Returns weights between words, [target words + </s>, source words + </s>].

    weights: [target pieces + </s>, source pieces + </s>]; words share the weight of their piece
    source_words, target_words: numbers of the words that each piece is part of, from 0
    sizes: source and target word counts
    """
    source_shares = _membership(source_words, sizes[0])  # [source pieces + 1, source words + 1]
    source_shares /= source_shares.sum(1, keepdims=True)
    target_pieces = _membership(target_words, sizes[1]).T  # [target words + 1, target pieces + 1]
    # A word without pieces has a row of zeros, not of NaN.
    target_means = target_pieces / np.maximum(1.0, target_pieces.sum(1, keepdims=True))
    return target_means @ weights @ source_shares


def _membership(piece_words: Sequence[range], word_count: int) -> np.ndarray:
    """[pieces + </s>, words + </s>]: 1 where a piece is part of a word."""
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
    """Returns the weights of `by_word`, with those of </s> kept apart."""
    table = by_word(weights, source_words, target_words, sizes)
    return WordAlignment(weights=table[:-1, :-1], to_end=table[:-1, -1], at_end=table[-1, :-1])


def symmetrize(forward: Links, backward: Links, how: Symmetrization) -> Links:
    """Combines the alignments of both directions into one (Och & Ney 2003).

    forward and backward are one direction alone. grow_diag starts from the intersection. It adds
    links of the union that are neighbours (diagonal ones too) of a link it has, if their source
    word or their target word has no link yet (Koehn et al. 2003).
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
    # Each round may add links beside those of the last one.
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
    """Agreement of links with a gold standard (Och & Ney 2003, section 7), each from 0 to 1.

    precision: share of the links that are possible
    recall: share of the sure links that were found
    error_rate: 0 is perfect
    """

    precision: float
    recall: float
    error_rate: float


def compare_links(
    alignments: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]
) -> AlignmentScores:
    """Scores of a corpus. With A the links, S the sure and P ⊇ S the possible ones:

    |A∩P| / |A|, |A∩S| / |S|, 1 − (|A∩S| + |A∩P|) / (|A| + |S|). A share of nothing is 1.
    """
    found_sure = found_possible = num_links = num_sure = 0
    for links, sure_links, possible_links in zip(alignments, sure, possible, strict=True):
        found_sure += len(links & sure_links)
        found_possible += len(links & (possible_links | sure_links))
        num_links += len(links)
        num_sure += len(sure_links)
    total = num_links + num_sure
    return AlignmentScores(
        found_possible / num_links if num_links else 1.0,
        found_sure / num_sure if num_sure else 1.0,
        1 - (found_sure + found_possible) / total if total else 0.0,
    )
