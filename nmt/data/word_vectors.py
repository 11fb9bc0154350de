"""Word vectors in the text format of word2vec, GloVe and fastText: one word and its numbers per line. Files of word2vec
and fastText begin with a line that gives the number of words and the size of the vectors."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError


def read_vectors(path: str, wanted: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The vectors of the wanted words (all if None), float32, all of one size.

    Raises UserError naming file and line if the file is not in this format.
    """
    file, found, size = find_file(path), dict[str, np.ndarray](), 0
    for number, line in enumerate(stream_lines(file), 1):
        fields = re.split(r"[ \t]+", line.strip(" \t"))
        if number == 1 and len(fields) == 2 and fields[1].isdecimal():
            size = int(fields[1]) if len(fields[1]) < 9 else 0  # a line with the sizes
            continue
        size = size or _trailing_numbers(fields)
        word, numbers = " ".join(fields[:-size]) if size else "", fields[-size:] if size else []
        if not word or len(numbers) != size or not size:
            raise UserError(
                f"{file}, line {number:,}: {len(fields) - 1} numbers after the word, but {size} before"
            )
        if wanted is not None and word not in wanted:
            continue
        try:
            vector = np.array(numbers, np.float64)
        except ValueError as error:
            raise UserError(f"{file}, line {number:,}: not a number ({error})") from error
        if not (np.abs(vector) < np.finfo(np.float32).max).all():
            raise UserError(
                f"{file}, line {number:,}: nan, inf or a number that is too large, which is no vector"
            )
        found[word] = vector.astype(np.float32)
    if not size:
        raise UserError(
            f"{path}: no vectors in it. Is {Path(path).name} a file of words and numbers?"
        )
    return found


def _trailing_numbers(fields: Sequence[str]) -> int:
    """How many numbers the first line ends with, its word left out."""
    count = 0
    for text in reversed(fields[1:]):
        try:
            float(text)
        except ValueError:
            break
        count += 1
    return count


def nearest(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Attention without training: softmax over source words of the scaled dot product with each target word.

    source [S D], target [T D] → weights [T S]; a word without a vector is all zeros and gets uniform weights.
    """
    scores = target @ source.T / np.sqrt(source.shape[1])
    e = np.exp(scores - scores.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
