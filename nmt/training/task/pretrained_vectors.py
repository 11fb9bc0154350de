"""Word vectors that are trained already, as the embeddings of the words that have one."""

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
    """Uses the word vectors of files as the vectors of the vocabulary's pieces.

    table: embeddings of the pieces
    pieces: the vocabulary
    paths: files of vectors; the first one that has a word counts
    size_key: key of the size of the embeddings, for messages

    Raises UserError if the files have no word of the vocabulary, or if vectors have another size.
    """
    words = {piece.removeprefix(SPACE) for piece in pieces if piece.startswith(SPACE)}
    words |= {word.lower() for word in words}
    vectors: dict[str, np.ndarray] = {}
    for path in paths:
        for word, vector in read_vectors(path, words - {""}).items():
            if len(vector) != table.embedding_dim:
                raise UserError(
                    f"vectors={path}: {len(vector)} numbers per word; set {size_key}={len(vector)}"
                )
            vectors.setdefault(word, vector)
    names = ", ".join(paths)
    share = use_vectors(table, pieces, vectors)
    if not share:
        raise UserError(
            f"vectors={names}: has none of the vocabulary's words. Are they of this language? "
            "Choose tokenizer=word, so that the vocabulary is made of words"
        )
    log.info("%s: word vectors found for %.0f %% of the vocabulary", names, 100 * share)


def use_vectors(
    table: nn.Embedding, pieces: Sequence[str], vectors: Mapping[str, np.ndarray]
) -> float:
    """Uses word vectors as the vectors of the pieces that are these words.

    Other pieces stay random, with the mean and standard deviation of the vectors. Returns the share
    of the vocabulary that has a vector.
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
