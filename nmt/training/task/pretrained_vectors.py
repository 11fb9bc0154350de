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
    """Uses the word vectors of files (the first that has a word) as the vectors of these pieces. Raises UserError if
    there are none for the vocabulary, or if they have another size; `size_key` is what to set then."""
    words = {
        form
        for piece in pieces
        if piece.startswith(SPACE)
        for form in (piece[1:], piece[1:].lower())
    }
    vectors: dict[str, np.ndarray] = {}
    for path in paths:
        for word, vector in read_vectors(path, words - {""}).items():
            if len(vector) != table.embedding_dim:
                raise UserError(
                    f"vectors={path}: {len(vector)} numbers per word; set {size_key}={len(vector)}"
                )
            vectors.setdefault(word, vector)
    share, names = use_vectors(table, pieces, vectors), ", ".join(paths)
    if not share:
        raise UserError(
            f"vectors={names}: has none of the vocabulary's words. Are they of this language? Choose tokenizer=word, "
            "so that the vocabulary is made of words"
        )
    log.info("%s: vectors for %.0f %% of the vocabulary", names, 100 * share)


def use_vectors(
    table: nn.Embedding, pieces: Sequence[str], vectors: Mapping[str, np.ndarray]
) -> float:
    """Uses word vectors as the vectors of the pieces that are these words. Other pieces stay random, with the mean
    and standard deviation of the vectors. Returns the share of the vocabulary that has a vector."""
    words = [piece.removeprefix(SPACE) if piece.startswith(SPACE) else "" for piece in pieces]
    result = {
        i: vectors.get(word, vectors.get(word.lower())) for i, word in enumerate(words) if word
    }
    known = {i: vector for i, vector in result.items() if vector is not None}
    with torch.no_grad():
        if known:
            values = torch.from_numpy(np.stack(list(known.values())))
            table.weight.normal_(float(values.mean()), float(values.std()))
            table.weight[list(known)] = values.to(table.weight)
        table.weight[[PAD, EOS]] = 0.0
    return len(known) / len(pieces)
