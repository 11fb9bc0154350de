"""Reads word vectors in the text format of word2vec, GloVe and fastText.

Each line contains a word and its vector, separated by spaces or tabs. In word2vec and fastText
files, the first line contains the number of words and the vector size.
"""

import itertools
import re
from collections.abc import Collection

import numpy as np

from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError


def read_vectors(path: str, vocabulary: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Returns float32 word vectors of equal size, by word.

    path: file of word vectors
    vocabulary: words to read; None reads all words

    Raises UserError with file and line if the format is invalid.
    """
    file = find_file(path)
    vectors = dict[str, np.ndarray]()
    size = 0  # vector size, 0 until known
    for number, line in enumerate(stream_lines(file), 1):
        place = f"{file}, line {number:,}"
        fields = re.split(r"[ \t]+", line.strip(" \t"))
        if number == 1 and len(fields) == 2 and fields[1].isdecimal():
            # vector size from a word2vec or fastText header
            size = int(fields[1]) if len(fields[1]) < 9 else 0
            continue
        size = size or sum(1 for _ in itertools.takewhile(_is_number, reversed(fields[1:])))
        if not size:
            raise UserError(
                f"{place}: expected a word and the values of its vector, separated by spaces or "
                f"tabs; got {line[:60]!r}"
            )
        word = " ".join(fields[:-size])
        if not word:
            raise UserError(
                f"{place}: the word vector has {len(fields) - 1} values, expected {size}"
            )
        if vocabulary is None or word in vocabulary:
            vectors[word] = _vector(fields[-size:], place)
    if not size:
        raise UserError(
            f"{path}: contains no word vectors; expected a word and its vector on each line"
        )
    return vectors


def _vector(numbers: list[str], place: str) -> np.ndarray:
    """Parses the values of a vector as float32.

    Raises UserError if a value is not a finite number.
    """
    try:
        vector = np.array(numbers, np.float64)
    except ValueError as error:
        raise UserError(f"{place}: the word vector contains an invalid number ({error})") from error
    if not (np.abs(vector) < np.finfo(np.float32).max).all():
        raise UserError(
            f"{place}: the word vector contains NaN, inf or a value too large for float32"
        )
    return vector.astype(np.float32)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def nearest(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns attention weights [T, S] without training: softmax of scaled dot products over source
    words.

    source: vectors of the source words [S, D]; zeros for a word without a vector
    target: vectors of the target words [T, D]
    """
    scores = target @ source.T / np.sqrt(source.shape[1])  # [T, S]
    exponentials = np.exp(scores - scores.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)
