"""Pointing game for image captions (Zhang et al. 2018), which tests attention to image regions.

The model is forced to produce the reference. Attention is correct for a word if the grid cell with
the most attention lies in the word's bounding box.
"""

import numpy as np

from nmt.data import Box, Pairs
from nmt.inference.translator import Translator
from nmt.metric import Result


def pointing(translator: Translator, part: Pairs) -> Result:
    """Returns the percentage of words for which the grid cell with the most attention lies in the
    word's bounding box."""
    assert part.regions is not None
    sources = translator.encode(part.source)
    targets = translator.tokenizer.encode_target(list(part.target))
    decodings = translator.force(sources, targets)
    right = 0
    count = 0
    for line, target, decoding, regions in zip(
        part.target, targets, decodings, part.regions, strict=True
    ):
        if decoding.places is None:
            continue
        spans = translator.tokenizer.target_spans(line, target)
        for begin, end, box in regions:
            # Tokens that overlap the word by at least one character
            pieces = [i for i, span in enumerate(spans) if span.start < end and span.stop > begin]
            right += bool(pieces) and inside(decoding.places[pieces].mean(0), box)
            count += 1
    return Result(100 * right / max(1, count), f"{count:,} words with a bounding box")


def inside(weights: np.ndarray, box: Box) -> bool:
    """Returns whether the centre of the grid cell with the most attention lies in a bounding box.

    weights: [rows, columns] attention weights of the image's grid cells
    box: top, left, bottom and right edge, as fractions of the image height or width
    """
    rows, columns = weights.shape
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    top, start, bottom, end = box
    return bool(top <= (row + 0.5) / rows <= bottom and start <= (column + 0.5) / columns <= end)
