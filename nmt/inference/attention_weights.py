"""Attention maps between words, from the attention of one or more models between pieces."""

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
    """A line and its translation, as texts and as ids, with a model's attention between them."""

    line: str
    text: str
    source: Sequence[int]
    target: list[int]
    decoding: ForcedDecoding


@dataclass(frozen=True)
class ModelAttention:
    """Attention of one model in some pairs; `name` distinguishes models in a map."""

    name: str
    tokenizer: Tokenizer
    pairs: Sequence[DecodedPair]


def maps_of(models: Sequence[ModelAttention], units: Units) -> list[AttentionMap]:
    """Returns a map for each pair, with the weights of all models between the first one's units."""
    maps = [_map_without_weights(models[0].tokenizer, pair, units) for pair in models[0].pairs]
    for model in models:
        for attention_map, pair in zip(maps, model.pairs, strict=True):
            _add_weights(attention_map, model, pair, units)
    return maps


def _map_without_weights(tokenizer: Tokenizer, pair: DecodedPair, units: Units) -> AttentionMap:
    source = []
    if tokenizer.columns.sources:
        source = [*tokenizer.source_units(pair.line, pair.source, units)[0], "</s>"]
    return AttentionMap(
        source=source,
        target=[*tokenizer.target_units(pair.text, pair.target, units)[0], "</s>"],
        picture=tokenizer.columns.picture_in(pair.line),
    )


def _add_weights(
    attention_map: AttentionMap, model: ModelAttention, pair: DecodedPair, units: Units
) -> None:
    decoding = pair.decoding
    if decoding.weights is None:
        return
    of_target = model.tokenizer.target_units(pair.text, pair.target, units)[1]
    target_count = len(attention_map.target) - 1
    if decoding.places is not None and decoding.places.size:
        places = _places_by_word(decoding.places, of_target, target_count)
        attention_map.places[model.name] = places
    if not attention_map.source:
        return
    of_source = model.tokenizer.source_units(pair.line, pair.source, units)[1]
    sizes = (len(attention_map.source) - 1, target_count)
    for name, weights in _named_weights(model.name, decoding).items():
        attention_map.weights[name] = by_word(weights, of_source, of_target, sizes)


def _named_weights(name: str, decoding: ForcedDecoding) -> dict[str, np.ndarray]:
    """Weights of each head, or those of a model with one."""
    if decoding.heads is None:
        assert decoding.weights is not None
        return {name: decoding.weights}
    prefix = f"{name}, " if name else ""
    return {f"{prefix}head {number}": w for number, w in enumerate(decoding.heads, 1)}


def _places_by_word(places: np.ndarray, of_target: Sequence[range], words: int) -> np.ndarray:
    """[pieces, rows, columns] → [words + </s>, rows, columns]: the mean of each word's pieces."""
    flat = places.reshape(len(places), -1)
    last_place = flat.shape[1] - 1
    # Every place is a "word" of its own; the last one takes the place of </s> in `by_word`.
    place_units = [range(place, place + 1) for place in range(last_place)]
    means = by_word(flat, place_units, of_target, (last_place, words))
    return means.reshape(-1, *places.shape[1:])
