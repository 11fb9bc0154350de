"""REINFORCE (Williams 1992) for a sampling window of attention.

The reward is the log-likelihood of the target words under the window's choices; the window turns it
into a loss, see nmt/model/attention/window/hard.py.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.foundation.interfaces import PAD, DecoderOutput, Prepared
from nmt.model.seq2seq import Seq2Seq


def likelihood_loss(
    model: Seq2Seq,
    output: DecoderOutput,
    memory: Prepared,
    targets: Int[Tensor, "N T"],
    smoothing: float,
    agreement: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Loss of the output layer, plus the REINFORCE loss of a sampling window if there is one.

    model: the network
    output: features and attention of the batch
    memory: memory of its sources
    targets: right words, padded with PAD
    smoothing: label smoothing, in training only
    agreement: factor of the divergence between two passes over the same sentence

    Returns the smoothed and the plain loss, sums in nats.
    """
    if not model.training:
        smoothing = 0.0
    loss, nll = model.output_layer.loss(output, memory, targets, smoothing, agreement=agreement)
    if model.training and model.decoder.attends and model.decoder.attention.window.needs_reward:
        loss = loss + _reinforce_loss(model, output, memory, targets)
    return loss, nll


def _reinforce_loss(
    model: Seq2Seq, output: DecoderOutput, memory: Prepared, targets: Int[Tensor, "N T"]
) -> Float[Tensor, ""]:
    is_word = targets != PAD  # [N, T]
    with torch.no_grad():
        log_probs = model.output_layer.log_probs_of(output, memory, targets)  # [N, T]
        log_likelihood = (log_probs * is_word).sum(1)  # [N]
    _, window_state = output.state.attention
    return model.decoder.attention.window.reinforce_loss(window_state, log_likelihood, is_word)
