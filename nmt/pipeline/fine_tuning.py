"""Fine-tuning: initial weights of a network from a trained model."""

import torch

from nmt.foundation.errors import UserError
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.checkpoint import Checkpoint

VOCABULARY = (
    "source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias",
    "lexical.output.weight",
)  # fmt: skip
"""Parameters with a row for each piece."""


def take_weights(network: Seq2Seq, saved: Checkpoint) -> None:
    """Copies the weights of a trained model.

    The network may have further pieces at the end of its vocabulary. Their vectors keep their
    initial values, and their bias is that of the least probable piece. Raises UserError if any
    other shape differs.
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
            f"init={saved.path}: its weights do not fit ({', '.join(wrong[:3])} …): leave the "
            "sizes and parts of the network as they are"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            rows = parameter[: len(weights[name])] if parameter.dim() else parameter
            rows.copy_(weights[name])
        # Pieces without training begin as improbable as the rarest piece.
        network.output.bias[len(weights["output.bias"]) :] = weights["output.bias"].min()


def _fits(name: str, shape: torch.Size, saved: torch.Size) -> bool:
    """Returns whether a saved parameter has the shape of the network, or fewer pieces."""
    has_more_pieces = name in VOCABULARY and shape[1:] == saved[1:] and shape[0] >= saved[0]
    return shape == saved or has_more_pieces
