"""Starting from a trained model: its network, weights and vocabulary, with new data, rate and objective."""

import torch

from nmt.foundation.errors import UserError
from nmt.model.seq2seq import Seq2Seq
from nmt.storage.checkpoint import Checkpoint

VOCABULARY = (
    "source_embedding.weight", "target_embedding.weight", "output.weight", "output.bias", "lexical.output.weight",
)  # fmt: skip
"""Parameters with a row for each piece."""


def take_weights(network: Seq2Seq, saved: Checkpoint) -> None:
    """Copies the weights of a trained model. The network may have more pieces, at the end of its vocabulary: their vectors
    stay as they are, and their bias is that of the least probable piece. Raises UserError if anything else differs."""
    weights = saved.part("ema") or saved.part("model")
    own = dict(network.named_parameters())
    wrong = sorted(set(own) ^ set(weights))
    for name in set(own) & set(weights):
        ours, theirs = own[name].shape, weights[name].shape
        more = name in VOCABULARY and ours[1:] == theirs[1:] and ours[0] >= theirs[0]
        wrong += [] if ours == theirs or more else [name]
    if wrong:
        some = ", ".join(sorted(wrong)[:3])
        what = "leave the sizes and parts of the network as they are"
        raise UserError(f"init={saved.path}: its weights do not fit ({some} …): {what}")
    with torch.no_grad():
        for name, parameter in own.items():
            rows = parameter[: len(weights[name])] if parameter.dim() else parameter
            rows.copy_(weights[name])
        network.output.bias[len(weights["output.bias"]) :] = weights["output.bias"].min()
