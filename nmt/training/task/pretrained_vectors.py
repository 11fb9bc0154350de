"""Initialisation of embeddings from pretrained word vectors."""

import logging
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from nmt.data.word_vectors import read_vectors
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import EOS, PAD
from nmt.tokenizer.words import SPACE

log = logging.getLogger(__name__)


def load_vectors(
    table: nn.Embedding, pieces: Sequence[str], paths: Sequence[str], size_key: str
) -> None:
    """Initialises the embeddings of words from files of pretrained word vectors.

    table: embedding table, changed in place
    pieces: subwords of the vocabulary, in the order of their ids
    paths: files of word vectors; the first file that contains a word is used
    size_key: configuration key of the embedding size, quoted in messages

    Raises UserError if the files contain no word of the vocabulary, or if the vectors have a
    different size.
    """
    words = {piece.removeprefix(SPACE) for piece in pieces if piece.startswith(SPACE)}
    words |= {word.lower() for word in words}
    vectors: dict[str, np.ndarray] = {}
    for path in paths:
        for word, vector in read_vectors(path, words - {""}).items():
            if len(vector) != table.embedding_dim:
                raise UserError(
                    f"vectors={path}: vectors have size {len(vector)}; set {size_key}={len(vector)}"
                )
            vectors.setdefault(word, vector)
    names = ", ".join(paths)
    share = use_vectors(table, pieces, vectors)
    if not share:
        raise UserError(
            f"vectors={names}: no vector for any word of the vocabulary. Check the language, and "
            "choose tokenizer=word, so that the vocabulary consists of words"
        )
    log.info("%s: word vectors found for %.0f %% of the vocabulary", names, 100 * share)


def use_vectors(
    table: nn.Embedding, pieces: Sequence[str], vectors: Mapping[str, np.ndarray]
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
