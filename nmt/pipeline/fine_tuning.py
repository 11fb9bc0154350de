"""Initialises a network with the weights of a trained model, for fine-tuning."""

import torch

from nmt.foundation.errors import UserError
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.checkpoint import Checkpoint

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

    Raises UserError if the shape of any other parameter differs.
    """
    weights = saved.weights
    parameters = dict(network.named_parameters())
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
            "…); do not change sizes and components of the network in fine-tuning"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            rows = parameter[: len(weights[name])] if parameter.dim() else parameter
            rows.copy_(weights[name])
        # New subwords start as improbable as the least probable trained subword.
        network.output.bias[len(weights["output.bias"]) :] = weights["output.bias"].min()


def _fits(name: str, shape: torch.Size, saved: torch.Size) -> bool:
    """Returns whether a saved parameter has the shape of the network's parameter, or fewer
    vocabulary rows.
    """
    has_more_pieces = name in VOCABULARY and shape[1:] == saved[1:] and shape[0] >= saved[0]
    return shape == saved or has_more_pieces
