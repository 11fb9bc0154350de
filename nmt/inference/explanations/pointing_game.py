"""Whether attention lies where words have their meaning: the pointing game (Zhang et al. 2018) for captions.

The model is forced to write the reference. A word counts as right if the place with the most attention, while the word was
predicted, lies in the part of the picture that the word tells.
"""

from __future__ import annotations

import numpy as np

from nmt.data import Box, Pairs
from nmt.inference.translator import Translator
from nmt.metric import Result


def pointing(translator: Translator, part: Pairs) -> Result:
    """The share of words whose attention is in their place, in per cent, of pictures whose captions have `places`."""
    right = count = 0
    assert part.regions is not None
    ids = list(
        zip(
            translator.encode(part.source),
            translator.tokenizer.encode_target(list(part.target)),
            strict=True,
        )
    )
    forced = translator.force([source for source, _ in ids], [target for _, target in ids])
    for line, (_, target), seen, places in zip(part.target, ids, forced, part.regions, strict=True):
        if seen.places is None:
            continue
        spans = translator.tokenizer.target_spans(line, target)
        for begin, end, box in places:
            pieces = [i for i, span in enumerate(spans) if span.start < end and span.stop > begin]
            right += bool(pieces) and inside(seen.places[pieces].mean(0), box)
            count += 1
    return Result(100 * right / max(1, count), f"{count:,} words with a place in the picture")


def inside(weights: np.ndarray, box: Box) -> bool:
    """Whether the middle of the place with the most weight [rows, columns] is in a box."""
    rows, columns = weights.shape
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    top, left, bottom, right = box
    return bool(top <= (row + 0.5) / rows <= bottom and left <= (column + 0.5) / columns <= right)
