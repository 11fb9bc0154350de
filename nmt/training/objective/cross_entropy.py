"""Maximum likelihood with teacher forcing: each token is predicted from the preceding reference
tokens.

Hard attention with the estimator `reinforce` is additionally trained by REINFORCE (Williams 1992).
The reward is the log-likelihood of the target tokens given the sampled source positions. The class
`Hard` computes the REINFORCE loss from the reward, because it samples the positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.foundation.interfaces import PAD, Batch, DecoderOutput, Loss, Prepared
from nmt.foundation.part_limits import ConfigError, RunView, broken
from nmt.foundation.ranges import Fraction, NonNegative
from nmt.model.seq2seq import Seq2Seq

SMALLEST = 1e-6
"""Lower bound of attention weights before the logarithm. An attention window can give a position
the weight 0, whose logarithm would be -inf."""


@dataclass(kw_only=True)
class CrossEntropy:
    """Cross-entropy of the reference tokens, with label smoothing (Szegedy et al. 2016).

    In training, two penalties can be added. α_ts is the attention weight of source position s in
    decoder step t. The doubly stochastic penalty (Xu et al. 2015, eq. 14) is 0 if every source
    position has a total weight of 1:

        λ Σ_s (1 − Σ_t α_ts)²        λ = `doubly_stochastic`

    Guided alignment (Chen et al. 2016, eq. 5-7) is the cross-entropy between word alignments and
    attention. The alignments are given, or estimated from the training text. A_ts is 1 divided by
    the number of links of token t for each linked position s, else 0:

        γ Σ_t −Σ_s A_ts log α_ts     γ = `guided_alignment`

    label_smoothing: weight of the uniform distribution in the target distribution, 0 to 1
    doubly_stochastic: weight λ of the doubly stochastic penalty; 0 disables it
    guided_alignment: weight γ of guided alignment; 0 disables it
    """

    label_smoothing: Fraction = 0.0
    doubly_stochastic: NonNegative = 0.0
    guided_alignment: NonNegative = 0.0

    can_be_recorded = True
    """True: updates can be recorded as CUDA graphs, because the loss depends only on the network
    and the batch."""

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error for each penalty term of the training loss that the attention or the data
        of the run does not support."""
        guided = "objective.guided_alignment"
        yield from run.needing_attention("objective.doubly_stochastic", guided)
        weight = run.value(guided)
        # Without data.alignment, the tokens of the training pairs are aligned before the training.
        is_estimated = weight and not run.value("data.alignment")
        weighing = (run.parts.get(group) for group in ("window", "normalizer"))
        are_positive = all(getattr(part, "all_positive", True) for part in weighing)
        yield from broken(
            (
                is_estimated and not run.sources,
                guided,
                "guided alignment needs source words, but the source is an image",
                weight,
            ),
            (
                is_estimated and run.value("tokenizer.sampling"),
                guided,
                "subwords cannot be aligned before training, because tokenizer.sampling "
                "draws a new segmentation in each epoch; give word alignments "
                "(data.alignment), or set tokenizer.sampling=0",
                weight,
            ),
            (
                weight and not are_positive,
                guided,
                "guided alignment needs attention weights above 0; use normalizer=softmax, "
                "and neither window=hard nor window=monotonic",
                weight,
            ),
        )

    def __call__(self, model: Seq2Seq, batch: Batch, update: int, total: int = 0) -> Loss:
        output, memory = model.teacher_forcing(batch)
        loss, nll = likelihood_loss(model, output, memory, batch.targets, self.label_smoothing)
        if self.doubly_stochastic and model.training:
            loss = loss + self.doubly_stochastic * self._unevenness(output.weights, batch, memory)
        if self.guided_alignment and model.training:
            loss = loss + self.guided_alignment * self._misalignment(output.weights, batch)
        return Loss(total=loss, nll=nll, num_tokens=batch.num_tokens)

    def _misalignment(self, weights: Tensor | None, batch: Batch) -> Tensor:
        """Returns the guided alignment penalty −Σ A log α, for attention weights α [B, T, S] and
        normalised alignment links A [B, T, W], which link the first W positions, the words."""
        if weights is None or batch.links is None:
            raise ValueError(
                "objective.guided_alignment: needs a decoder with attention and word alignments "
                "of the training pairs; otherwise, set objective.guided_alignment=0"
            )
        of_words = weights[..., : batch.links.size(2)]  # an image follows the words
        return -(batch.links * of_words.clamp(min=SMALLEST).log()).sum()

    def _unevenness(self, weights: Tensor | None, batch: Batch, memory: Prepared) -> Tensor:
        """Returns the doubly stochastic penalty Σ_s (1 − Σ_t α_ts)² for attention weights α_ts of
        source position s in decoder step t, padding excluded."""
        if weights is None:
            raise ValueError(
                "objective.doubly_stochastic needs a decoder with attention: set "
                "objective.doubly_stochastic=0"
            )
        is_word = batch.targets != PAD  # [B, T]
        attended = (weights * is_word.unsqueeze(-1)).sum(1)  # [B, S]
        # Source positions of sentences with a target; a padded batch has rows without.
        is_counted = memory.mask & is_word.any(1, keepdim=True)  # [B, S]
        return ((1 - attended) ** 2 * is_counted).sum()


def likelihood_loss(
    model: Seq2Seq,
    output: DecoderOutput,
    memory: Prepared,
    targets: Int[Tensor, "N T"],
    smoothing: float,
    agreement: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Returns the smoothed and the plain loss of the output layer, in nats, summed over the tokens.
    The smoothed loss includes the REINFORCE loss of hard attention with the estimator `reinforce`.

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
