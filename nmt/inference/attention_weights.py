"""Attention maps between words, from a model's attention between pieces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.drawing.attention_map import AttentionMap
from nmt.inference.translation import ForcedDecoding
from nmt.inference.word_alignment import by_word
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

Ids = Sequence[tuple[list[int], list[int]]]
"""Pieces of the source and of the target of each pair."""


def empty(
    tokenizer: Tokenizer, lines: Sequence[str], texts: Sequence[str], ids: Ids, units: Units
) -> list[AttentionMap]:
    """Maps without weights."""
    return [
        AttentionMap(
            [*tokenizer.source_units(line, source, units)[0], "</s>"]
            if tokenizer.columns.sources
            else [],
            [*tokenizer.target_units(text, target, units)[0], "</s>"],
            picture=tokenizer.columns.picture_in(line),
        )
        for line, text, (source, target) in zip(lines, texts, ids, strict=True)
    ]


def add(
    seen: Sequence[AttentionMap],
    name: str,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    texts: Sequence[str],
    ids: Ids,
    details: Sequence[ForcedDecoding],
    units: Units,
) -> None:
    """Adds to each map the weights between its units, computed from a model's weights between pieces, under `name`."""
    for each, line, text, (source, target), forced in zip(
        seen, lines, texts, ids, details, strict=True
    ):
        if forced.weights is None:
            continue
        of_target = tokenizer.target_units(text, target, units)[1]
        if forced.places is not None and forced.places.size:
            each.places[name] = _by_target_word(forced.places, of_target, len(each.target) - 1)
        if not each.source:
            continue
        heads = {name: forced.weights}
        if forced.heads is not None:
            heads = {
                f"{name}, head {h}".removeprefix(", "): w for h, w in enumerate(forced.heads, 1)
            }
        of_source = tokenizer.source_units(line, source, units)[1]
        sizes = len(each.source) - 1, len(each.target) - 1
        each.weights.update(
            {head: by_word(weights, of_source, of_target, sizes) for head, weights in heads.items()}
        )


def _by_target_word(places: np.ndarray, of_target: Sequence[range], words: int) -> np.ndarray:
    """[pieces, rows, columns] → [words + </s>, rows, columns]: the mean of each word's pieces."""
    flat = places.reshape(len(places), -1)
    each_its_own = [range(i, i + 1) for i in range(flat.shape[1] - 1)]
    return by_word(flat, each_its_own, of_target, (len(each_its_own), words)).reshape(
        -1, *places.shape[1:]
    )
