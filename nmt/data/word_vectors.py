"""Pretrained word vectors: files of word2vec, GloVe and fastText, and initialisation of embeddings.

Each line of a file contains a word and its vector, separated by spaces or tabs. In word2vec and
fastText files, the first line contains the number of words and the vector size.
"""

import itertools
import logging
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch

from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, PAD
from nmt.tokenizer.words import SPACE


def read_vectors(path: str, vocabulary: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Returns float32 word vectors of equal size, by word.

    path: file of word vectors
    vocabulary: words to read; None reads all words

    Raises UserError with file and line if the format is invalid.
    """
    file = find_file(path, f"vectors={path}")
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

    source: vectors of the source words [S, D]; zeros for a word without a vector, whose weights
        are 0
    target: vectors of the target words [T, D]; zeros as in `source`
    """
    scores = target @ source.T / np.sqrt(source.shape[1])  # [T, S]
    scores[:, ~source.any(1)] = -np.inf
    # NaN is the softmax of a row of -inf, if no source word has a vector.
    weights = torch.from_numpy(scores).softmax(1).nan_to_num().numpy()
    return weights * target.any(1, keepdims=True)


log = logging.getLogger(__name__)


def load_vectors(
    table: torch.nn.Embedding, pieces: Sequence[str], paths: Sequence[str], size_key: str
) -> None:
    """Initialises the embeddings of words from files of pretrained word vectors.

    table: embedding table, changed in place
    pieces: subwords of the vocabulary, in the order of their ids
    paths: files of word vectors; the first file that contains a word is used
    size_key: configuration key of the embedding size, quoted in messages

    Raises UserError if the files contain no word of the vocabulary, or if the size of the vectors
    differs from the embedding size.
    """
    words = {piece.removeprefix(SPACE) for piece in pieces if piece.startswith(SPACE)}
    words |= {word.lower() for word in words}
    vectors: dict[str, np.ndarray] = {}
    for path in paths:
        for word, vector in read_vectors(path, words - {""}).items():
            if len(vector) != table.embedding_dim:
                raise UserError(
                    f"vectors={path}: the word vectors have {len(vector)} dimensions; set "
                    f"{size_key}={len(vector)}"
                )
            vectors.setdefault(word, vector)
    names = ", ".join(paths)
    share = use_vectors(table, pieces, vectors)
    if not share:
        raise UserError(
            f"vectors={names}: the files contain no word of the vocabulary. Check the "
            "language, and choose tokenizer=word, so that the vocabulary consists of words"
        )
    log.info("%s: word vectors found for %.0f %% of the vocabulary", names, 100 * share)


def use_vectors(
    table: torch.nn.Embedding, pieces: Sequence[str], vectors: Mapping[str, np.ndarray]
) -> float:
    """Initialises the embeddings of subwords that are whole words from word vectors.

    All other embeddings are drawn from a normal distribution with the mean and standard deviation
    of the word vectors.

    table: embedding table, changed in place
    pieces: subwords of the vocabulary, in the order of their ids
    vectors: mapping from words to their vectors

    Returns the fraction of the vocabulary that has a word vector, 0 to 1.
    """
    new_rows = {}
    for number, piece in enumerate(pieces):
        word = piece.removeprefix(SPACE)
        vector = vectors.get(word, vectors.get(word.lower()))
        if piece.startswith(SPACE) and word and vector is not None:
            new_rows[number] = vector
    with torch.no_grad():
        if new_rows:
            values = torch.from_numpy(np.stack(list(new_rows.values())))  # [new_rows pieces, E]
            table.weight.normal_(float(values.mean()), float(values.std()))
            table.weight[list(new_rows)] = values.to(table.weight)
        table.weight[[PAD, EOS]] = 0.0
    return len(new_rows) / len(pieces)
