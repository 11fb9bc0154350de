"""Attention maps between words, computed from attention weights between subwords."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.drawing.attention_map import AttentionMap
from nmt.inference.translation import ForcedDecoding
from nmt.inference.word_alignment import by_word
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units


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
    """Returns the attention weights by name of the head; by name of the model if the model has one
    head."""
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
