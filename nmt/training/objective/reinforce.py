"""REINFORCE (Williams 1992) for attention windows that sample positions.

The reward is the log-likelihood of the target tokens given the sampled positions. The attention
window computes the REINFORCE loss from the reward.
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
    """Returns the smoothed and the plain loss of the output layer, in nats, summed over the tokens.
    The smoothed loss includes the REINFORCE loss if the attention window samples positions.

    model: translation network
    output: decoder output for the batch
    memory: prepared encoder memory of the sources
    targets: reference tokens, padded with PAD
    smoothing: label smoothing, 0 to 1; applied in training only
    agreement: weight of the divergence between two passes over the same sentence; 0 for one pass
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
