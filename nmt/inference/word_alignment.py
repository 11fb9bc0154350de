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
from nmt.inference.translation import ForcedDecoding, Translation
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

Symmetrization = Literal["intersection", "union", "grow_diag", "forward", "backward"]
NEIGHBORS = ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))
"""Offsets (source words, target words) from an alignment link to its eight neighbours."""


@dataclass(frozen=True)
class WordAlignment:
    """Alignment weights between words. For each target word with tokens, `weights` and `to_end`
    together sum to 1.

    weights: [target words, source words] weight of each source word for each target word
    to_end: [target words] weight of the source's `</s>` for each target word
    at_end: [source words] weight of each source word for the target's `</s>`
    """

    weights: np.ndarray
    to_end: np.ndarray
    at_end: np.ndarray

    def pairs(self) -> list[tuple[int, int]]:
        """Returns one pair (source word, target word) for each target word, with words numbered
        from 0. Target words without tokens have no pair.

        The source word of a pair is the word with the greatest weight.
        """
        return sorted(strongest_links(self.weights))


def strongest_links(weights: np.ndarray) -> Links:
    """Returns one link (source position, target position) per target position, to the source
    position with the greatest weight; rows of zeros have no link.

    weights: [T, S] weights of the source positions for each target position
    """
    return frozenset((int(row.argmax()), t) for t, row in enumerate(weights) if row.any())


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
    means = shares_of_words(target_words, sizes[1], axis=0).T  # of the tokens of a target word
    return means @ weights @ shares_of_words(source_words, sizes[0])


def shares_of_words(
    piece_words: Sequence[range], word_count: int, axis: Literal[0, 1] = 1
) -> np.ndarray:
    """Returns a matrix [tokens + </s>, words + </s>] that is not 0 where a token belongs to a word.

    axis: 1 divides the weight of a token equally among its words; 0 divides the weight of a word
        equally among its tokens, so the transposed matrix averages values of tokens
    """
    shares = np.zeros((len(piece_words) + 1, word_count + 1))
    for piece, words in enumerate(piece_words):
        shares[piece, words.start : words.stop] = 1.0
    shares[-1, -1] = 1.0
    return shares / np.maximum(1.0, shares.sum(axis, keepdims=True))


def word_alignment(
    tokenizer: Tokenizer, source: str, translation: Translation, rank: int, units: Units = "word"
) -> WordAlignment:
    """Returns the word alignment of one hypothesis with its source line.

    tokenizer: tokenizer of the model
    source: input line
    translation: all hypotheses of the line
    rank: position of the hypothesis in the n-best list, from 0
    units: units of the word alignment: words or subwords
    """
    weights = translation.details[rank].weights
    assert weights is not None
    tokens = translation.hypotheses[rank].tokens
    source_units, of_source = tokenizer.source_units(source, list(translation.source), units)
    target_units, of_target = tokenizer.target_units(translation.texts[rank], tokens, units)
    sizes = (len(source_units), len(target_units))
    table = by_word(weights, of_source, of_target, sizes)
    return WordAlignment(weights=table[:-1, :-1], to_end=table[:-1, -1], at_end=table[-1, :-1])


def symmetrize(forward: Links, backward: Links, how: Symmetrization) -> Links:
    """Combines the word alignments of both translation directions into one alignment (Och & Ney
    2003).

    forward, backward: links of both directions, as pairs (source word, target word)
    how: `intersection`, `union`, `forward` or `backward` alone, or `grow_diag`. The method
        `grow_diag` extends the intersection by neighbouring links of the union, diagonal neighbours
        included, if their source or target word has no link yet (Koehn et al. 2003).
    """
    intersection = forward & backward
    union = forward | backward
    if how == "grow_diag":
        return _grow_diagonally(intersection, union)
    links = {
        "intersection": intersection,
        "union": union,
        "forward": forward,
        "backward": backward,
    }
    return links[how]


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
    pairs = list(zip(alignments, gold, strict=True))
    return [
        sum(len(links & of_pair.sure) for links, of_pair in pairs),
        sum(len(links & (of_pair.sure | of_pair.possible)) for links, of_pair in pairs),
        sum(len(links) for links, _ in pairs),
        sum(len(of_pair.sure) for _, of_pair in pairs),
    ]


def attention_map(
    tokenizer: Tokenizer,
    line: str,
    translation: Translation,
    units: Units,
    name: str = "",
    languages: tuple[str, str] = ("", ""),
) -> AttentionMap:
    """Returns the attention map of a source line and its best translation.

    tokenizer: tokenizer of the model
    line: source line
    translation: translation of the line, with the details of the best hypothesis
    units: units of rows and columns of the map: words or subwords
    name: name of the model, shown in the map
    languages: codes of the source and target language ("" if unknown)
    """
    decoding = translation.details[0]
    has_text = tokenizer.columns.sources > 0
    source, of_source = (
        tokenizer.source_units(line, translation.source, units) if has_text else ([], [])
    )
    tokens = translation.hypotheses[0].tokens
    target, of_target = tokenizer.target_units(translation.text, tokens, units)
    weights = {}
    if decoding.weights is not None and has_text:
        sizes = (len(source), len(target))
        for head, between_pieces in _named_weights(name, decoding).items():
            weights[head] = by_word(between_pieces, of_source, of_target, sizes)
    places = {}
    if decoding.places is not None and decoding.places.size:
        # [words + </s>, rows, columns]
        means = shares_of_words(of_target, len(target), axis=0).T
        places[name] = np.tensordot(means, decoding.places, 1)
    # The probability of a word is the product over its tokens. The bound avoids 0 · -inf.
    log_probs = np.maximum(decoding.log_probs, -1e30)
    probabilities = np.exp(log_probs @ shares_of_words(of_target, len(target)))  # [words + 1]
    return AttentionMap(
        source=[*source, "</s>"] if has_text else [],
        target=[*target, "</s>"],
        weights=weights,
        picture=tokenizer.columns.picture_in(line),
        places=places,
        probabilities=dict.fromkeys(weights or places, probabilities),
        languages=languages,
        author=name,
    )


def _named_weights(name: str, decoding: ForcedDecoding) -> dict[str, np.ndarray]:
    """Returns a dictionary from names of attention heads to their weights. If the attention has a
    single head, its key is the name of the model."""
    if decoding.heads is None:
        assert decoding.weights is not None
        return {name: decoding.weights}
    prefix = f"{name}, " if name else ""
    return {f"{prefix}head {number}": w for number, w in enumerate(decoding.heads, 1)}
