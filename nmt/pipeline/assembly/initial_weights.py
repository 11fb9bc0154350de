"""Weights of a new network that are not random: those of an initial model (init=), and pretrained
word vectors (vectors=)."""

from collections.abc import Sequence
from typing import Any

import torch

from nmt.data.word_vectors import load_vectors
from nmt.foundation.errors import UserError
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.checkpoint import Checkpoint
from nmt.tokenizer import Tokenizer

VOCABULARY = (
    "source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias",
    "lexical.output.weight",
)  # fmt: skip
"""Names of network parameters with one row per subword."""


def take_weights(network: Seq2Seq, saved: Checkpoint) -> None:
    """Copies the weights of a trained model into a network.

    The network's vocabulary may have additional subwords at its end. The embeddings of additional
    subwords keep their initial values. The output bias of additional subwords is that of the least
    probable trained subword.

    Running estimates, such as the mean reward of hard attention, may be missing.

    Raises UserError if the shape of any other parameter differs.
    """
    weights = saved.weights
    estimates = {id(estimate) for estimate in network.estimates()}
    parameters = {
        name: parameter
        for name, parameter in network.named_parameters()
        if name in weights or id(parameter) not in estimates
    }
    wrong = sorted(
        {*(parameters.keys() ^ weights.keys())}
        | {
            name
            for name in parameters.keys() & weights.keys()
            if not _fits(name, parameters[name].shape, weights[name].shape)
        }
    )
    if wrong:
        raise UserError(
            f"init={saved.path}: the weights do not match the network ({', '.join(wrong[:3])} "
            "…); fine-tuning needs the same sizes and components as the initial model"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            rows = parameter[: len(weights[name])] if parameter.dim() else parameter
            rows.copy_(weights[name])
        # New subwords start as improbable as the least probable trained subword.
        network.output.bias[len(weights["output.bias"]) :] = weights["output.bias"].min()


def _fits(name: str, shape: torch.Size, saved: torch.Size) -> bool:
    """Returns whether a saved parameter has the shape of the network's parameter. A parameter with
    one row per token may have fewer rows.
    """
    has_more_pieces = name in VOCABULARY and shape[1:] == saved[1:] and shape[0] >= saved[0]
    return shape == saved or has_more_pieces


def use_vectors(network: Seq2Seq, tokenizer: Tokenizer, paths: Sequence[str | None]) -> None:
    """Loads pretrained word vectors into the embeddings.

    network: network whose embeddings are replaced
    tokenizer: tokenizer of the network
    paths: files for source and target; None without a file

    If both languages share one embedding, source vectors take precedence.
    """
    source = tokenizer.source_pieces(list(range(tokenizer.source_size)))
    target = tokenizer.target_pieces(list(range(tokenizer.target_size)))
    sides: list[tuple[Any, list[str], Sequence[str | None]]] = [
        (network.source_embedding, source, paths[:1]),
        (network.target_embedding, target, paths[1:]),
    ]
    if network.source_embedding is network.target_embedding:
        # one embedding table for both languages
        sides = [(network.source_embedding, source, paths)]
    for table, pieces, files in sides:
        names = [file for file in files if file]
        if names:
            load_vectors(table, pieces, names, "model.embedding_size")
