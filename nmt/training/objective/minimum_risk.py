"""Minimum risk training (Shen et al. 2016, eq. 9-13; Edunov et al. 2018, section 3.3): minimises
the expected cost of the model's translations.

For a training pair (x, y*) and a set S(x) of translations of x by the current model, the risk is

    R = Σ_{y ∈ S(x)} Q(y) Δ(y, y*)        Q(y) = P(y | x)^α / Σ_{y' ∈ S(x)} P(y' | x)^α

α is the `sharpness`, and the cost Δ is 1 − sentence-level BLEU or chrF, 0 to 1. As in
Edunov et al. 2018, S(x) does not contain y*. The gradient is that of a likelihood with one weight
per translation:

    ∂R = Σ_y α Q(y) (Δ(y, y*) − R) ∂ log P(y | x)

Therefore, the loss function of the output layer computes the gradient, and the backward pass
stores no distribution over the vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmt.foundation.interfaces import (
    BOS,
    EOS,
    PAD,
    Batch,
    Candidate,
    CandidateGenerator,
    Loss,
    Prepared,
    State,
    to_device,
)
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import Fraction, Positive, Width
from nmt.model.seq2seq import Seq2Seq
from nmt.training.objective.cross_entropy import CrossEntropy


@dataclass(kw_only=True)
class MinimumRisk:
    """Minimum risk training: (1 − λ) times the mean risk per sentence, plus λ times the mean
    cross-entropy per token.

    The initial network should be a trained network (`init=RUN_DIR`). Validation uses teacher
    forcing.

    candidates: number of translations per sentence, generated without dropout; duplicates are
        removed
    source: origin of the candidates: "sample", or "beam" for a beam of width `candidates`
    cost: metric of a translation: bleu or chrf; the cost is 1 minus the metric
    sharpness: α, exponent of the translation probabilities
    likelihood: λ, weight of the cross-entropy, 0 to 1
    label_smoothing: label smoothing of the cross-entropy, 0 to 1
    candidate_generator: function that translates a batch and compares the translations with the
        references
    """

    candidates: Width = 8
    source: Literal["sample", "beam"] = "sample"
    cost: Literal["bleu", "chrf"] = "bleu"
    sharpness: Positive = 0.1
    likelihood: Fraction = 0.3
    label_smoothing: Fraction = 0.0
    candidate_generator: CandidateGenerator | None = None

    def __post_init__(self) -> None:
        if self.candidates < 2:
            raise ValueError(f"objective.candidates={self.candidates} must be at least 2")
        if self.label_smoothing and not self.likelihood:
            raise ValueError("objective.label_smoothing has no effect with objective.likelihood=0")

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error for hard attention with REINFORCE.

        REINFORCE has samples and rewards of its own, which conflict with minimum risk training.
        """
        if run.value("window.estimator") == "reinforce":
            yield run.error(
                "window.estimator",
                "cannot be combined with objective=minimum_risk; use "
                "window.estimator=straight_through, or another objective",
            )

    def __call__(self, model: Seq2Seq, batch: Batch, update: int, total: int = 0) -> Loss:
        if not model.training:
            return CrossEntropy()(model, batch, update)
        assert self.candidate_generator is not None
        proposed = self.candidate_generator(model, batch, self.candidates, self.source, self.cost)
        memory = model.encode(batch.source, batch.source_lengths, batch.pictures)
        state = model.start(memory)
        scale = batch.num_tokens / len(proposed)  # mean number of tokens per sentence
        risk = self._risk(model, state, memory, proposed, scale)
        if not self.likelihood:
            nll = torch.full_like(risk, torch.nan).detach()  # the reference tokens have no loss
            return Loss(total=risk, nll=nll, num_tokens=batch.num_tokens)
        output = model.decode(batch.inputs, state, memory)
        loss, nll = model.output_layer.loss(output, memory, batch.targets, self.label_smoothing)
        return Loss((1 - self.likelihood) * risk + self.likelihood * loss, nll, batch.num_tokens)

    def _risk(
        self,
        model: Seq2Seq,
        state: State,
        memory: Prepared,
        proposed: Sequence[Sequence[Candidate]],
        scale: float,
    ) -> Float[Tensor, ""]:
        """Returns the risk, summed over the B sentences of a batch and multiplied by `scale`, with
        its gradient.

        proposed: candidates of each sentence; shorter lists are padded to the longest
        """
        device = memory.values.device
        count = max(map(len, proposed))  # C
        candidates: list[Candidate] = []
        for of_sentence in proposed:
            candidates += [*of_sentence, *[Candidate([], 0.0)] * (count - len(of_sentence))]
        counts = to_device(torch.tensor([len(of_sentence) for of_sentence in proposed]), device)
        is_real = torch.arange(count, device=device) < counts.unsqueeze(1)  # [B, C]
        # [B C]
        qualities = torch.tensor([candidate.quality for candidate in candidates])
        costs = to_device(1 - qualities.view(-1, count), device)  # [B, C]
        tokens = [torch.tensor([*candidate.tokens, EOS]) for candidate in candidates]
        padded = pad_sequence(tokens, batch_first=True, padding_value=PAD)
        targets = to_device(padded, device)  # [B C, T]
        inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], 1)  # [B C, T]
        rows = torch.arange(len(proposed), device=device).repeat_interleave(count)  # [B C]
        output = model.decode(inputs, state.select(rows), memory)  # readout [B C, T, D]
        with torch.no_grad():
            token_log_probs = model.output_layer.log_probs_of(output, memory, targets)  # [B C, T]
            log_probs = (token_log_probs * (targets != PAD)).sum(1).view(-1, count)  # [B, C]
            # [B, C]
            q = torch.softmax((self.sharpness * log_probs).masked_fill(~is_real, -torch.inf), 1)
            risk = (q * costs.to(q.dtype)).sum(1)  # [B]
            weights = self.sharpness * q * (costs - risk.unsqueeze(1))  # ∂R/∂ log P
            token_weights = (scale * weights).view(-1, 1).expand_as(targets)  # [B C, T]
        # −Σ weight · log P
        likelihood, _ = model.output_layer.loss(
            output, memory, targets, 0.0, token_weights.to(output.readout.dtype)
        )
        # The value is the risk; the gradient is that of −likelihood.
        return scale * risk.sum().to(likelihood.dtype) + likelihood.detach() - likelihood
