"""Word vectors in the text format of word2vec, GloVe and fastText: a word and its numbers per line.

Fields are separated by spaces or tabs. Files of word2vec and fastText begin with a line with the
number of words and the size of the vectors.
"""

import itertools
import re
from collections.abc import Collection
from pathlib import Path

import numpy as np

from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError


def read_vectors(path: str, vocabulary: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Vectors by word, float32, all of one size.

    path: file of word vectors.
    vocabulary: words to read; None: all.

    Raises UserError with file and line if the file is not in this format.
    """
    file = find_file(path)
    vectors = dict[str, np.ndarray]()
    size = 0  # numbers of a vector
    for number, line in enumerate(stream_lines(file), 1):
        place = f"{file}, line {number:,}"
        fields = re.split(r"[ \t]+", line.strip(" \t"))
        if number == 1 and len(fields) == 2 and fields[1].isdecimal():
            size = int(fields[1]) if len(fields[1]) < 9 else 0  # a line with the sizes
            continue
        size = size or sum(1 for _ in itertools.takewhile(_is_number, reversed(fields[1:])))
        if not size:
            raise UserError(
                f"{place}: expected a word and its numbers, between spaces or tabs; "
                f"got {line[:60]!r}"
            )
        word = " ".join(fields[:-size])
        if not word:
            raise UserError(f"{place}: {len(fields) - 1} numbers after the word, but {size} before")
        if vocabulary is None or word in vocabulary:
            vectors[word] = _vector(fields[-size:], place)
    if not size:
        raise UserError(
            f"{path}: contains no vectors. Is {Path(path).name} a file of words and numbers?"
        )
    return vectors


def _vector(numbers: list[str], place: str) -> np.ndarray:
    """Numbers of a line as float32. Raises UserError if they are not finite numbers."""
    try:
        vector = np.array(numbers, np.float64)
    except ValueError as error:
        raise UserError(f"{place}: not a number ({error})") from error
    if not (np.abs(vector) < np.finfo(np.float32).max).all():
        raise UserError(f"{place}: the vector contains NaN, inf or a number that is too large")
    return vector.astype(np.float32)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def nearest(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Attention without training: softmax over source words of scaled dot products.

    source: vectors of the source words, [S, D]; zeros for a word without a vector, whose products
        are 0.
    target: vectors of the target words, [T, D].

    Returns weights [T, S].
    """
    scores = target @ source.T / np.sqrt(source.shape[1])  # [T, S]
    exponentials = np.exp(scores - scores.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)
