"""Word alignments and attention maps from attention weights: conversion from subwords to words,
symmetrization, and scores against a gold standard.

The weight between two words is the sum over the source word's subwords and the mean over the target
word's subwords. The weights of `</s>`, which is not a word, are kept separately.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from nmt.data.links import GoldLinks, Links
from nmt.drawing.attention_map import AttentionMap
from nmt.inference.translation import ForcedDecoding
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

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

        The source word of a pair is the word with the greatest weight.
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
    """Returns the word alignment of token weights, with the weights of `</s>` in separate fields.

    weights: attention weights between tokens, [target tokens + </s>, source tokens + </s>]
    source_words, target_words: range of words (from 0) to which each token belongs
    sizes: number of source words and number of target words
    """
    table = by_word(weights, source_words, target_words, sizes)
    return WordAlignment(weights=table[:-1, :-1], to_end=table[:-1, -1], at_end=table[-1, :-1])


def symmetrize(forward: Links, backward: Links, how: Symmetrization) -> Links:
    """Combines the word alignments of both translation directions into one alignment (Och & Ney
    2003).

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


@dataclass(frozen=True)
class DecodedPair:
    """Source line and its translation, as text and as token ids, with the attention weights between
    both.

    line: source line
    text: translation
    source: source token ids
    target: target token ids
    decoding: token probabilities and attention weights of the translation
    """

    line: str
    text: str
    source: Sequence[int]
    target: list[int]
    decoding: ForcedDecoding


def attention_map(
    tokenizer: Tokenizer,
    pair: DecodedPair,
    units: Units,
    name: str = "",
    languages: tuple[str, str] = ("", ""),
) -> AttentionMap:
    """Returns the attention map of a sentence pair.

    tokenizer: tokenizer of the model
    pair: source line and translation with attention weights
    units: units of rows and columns of the map: words or subwords
    name: name of the model, shown in the map
    languages: codes of the source and target language ("" if unknown)
    """
    decoding = pair.decoding
    has_text = tokenizer.columns.sources > 0
    source, of_source = (
        tokenizer.source_units(pair.line, pair.source, units) if has_text else ([], [])
    )
    target, of_target = tokenizer.target_units(pair.text, pair.target, units)
    weights = {}
    if decoding.weights is not None and has_text:
        sizes = (len(source), len(target))
        for head, between_pieces in _named_weights(name, decoding).items():
            weights[head] = by_word(between_pieces, of_source, of_target, sizes)
    places = {}
    if decoding.places is not None and decoding.places.size:
        places[name] = _places_by_word(decoding.places, of_target, len(target))
    probabilities = _probabilities(decoding.log_probs, of_target, len(target))
    return AttentionMap(
        source=[*source, "</s>"] if has_text else [],
        target=[*target, "</s>"],
        weights=weights,
        picture=tokenizer.columns.picture_in(pair.line),
        places=places,
        probabilities=dict.fromkeys(weights or places, probabilities),
        languages=languages,
        author=name,
    )


def _probabilities(log_probs: np.ndarray, of_target: Sequence[range], words: int) -> np.ndarray:
    """Returns the probability of each target word and of `</s>`, [words + 1].

    The probability of a word is the product over its tokens.

    log_probs: [tokens + EOS] log-probabilities of the tokens
    of_target: range of words that each target token belongs to
    words: number of target words
    """
    totals = np.zeros(words + 1)
    totals[words] = log_probs[-1]
    for log_prob, of_token in zip(log_probs, of_target, strict=False):
        for word in of_token:
            totals[word] += log_prob / len(of_token)
    return np.exp(totals)


def _named_weights(name: str, decoding: ForcedDecoding) -> dict[str, np.ndarray]:
    """Returns the attention weights by name of the head, or by name of a model that has a single
    head.
    """
    if decoding.heads is None:
        assert decoding.weights is not None
        return {name: decoding.weights}
    prefix = f"{name}, " if name else ""
    return {f"{prefix}head {number}": w for number, w in enumerate(decoding.heads, 1)}


def _places_by_word(places: np.ndarray, of_target: Sequence[range], words: int) -> np.ndarray:
    """Returns the attention of each target word to the grid cells of an image, [words + </s>, rows,
    columns].

    The attention of a word is the mean over its subwords.

    places: [tokens + EOS, rows, columns] attention of each target token to the grid cells
    of_target: range of words that each target token belongs to
    words: number of target words
    """
    flat = places.reshape(len(places), -1)  # [pieces, rows · columns]
    last_place = flat.shape[1] - 1
    # `by_word` treats every grid cell as a source word, and the last cell as </s>.
    place_units = [range(place, place + 1) for place in range(last_place)]
    means = by_word(flat, place_units, of_target, (last_place, words))  # [words + </s>, places]
    return means.reshape(-1, *places.shape[1:])
