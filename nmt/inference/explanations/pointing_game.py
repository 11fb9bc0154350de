"""Pointing game for captions: whether attention lies where words are shown (Zhang et al. 2018).

The model is forced to write the reference. A word counts as right if the place with the most
attention while it is predicted lies in the word's box of the picture.
"""

import numpy as np

from nmt.data import Box, Pairs
from nmt.inference.translator import Translator
from nmt.metric import Result


def pointing(translator: Translator, part: Pairs) -> Result:
    """Returns the percentage of words whose attention is in their box of the picture."""
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
            # Pieces that share a character with the word.
            pieces = [i for i, span in enumerate(spans) if span.start < end and span.stop > begin]
            right += bool(pieces) and inside(decoding.places[pieces].mean(0), box)
            count += 1
    return Result(100 * right / max(1, count), f"{count:,} words with a place in the picture")


def inside(weights: np.ndarray, box: Box) -> bool:
    """Whether the middle of the place with the most weight [rows, columns] is in a box."""
    rows, columns = weights.shape  # of the grid
    row, column = np.unravel_index(int(weights.argmax()), weights.shape)
    top, start, bottom, end = box
    return bool(top <= (row + 0.5) / rows <= bottom and start <= (column + 0.5) / columns <= end)
