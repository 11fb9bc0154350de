"""One network or an ensemble as the `Step` that searches use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.foundation.interfaces import (
    BOS,
    PAD,
    Layout,
    Prediction,
    Prepared,
    SearchState,
    State,
    Step,
)
from nmt.model.seq2seq import Seq2Seq

Averaging = Literal["probability", "log_probability"]


class ModelStep:
    """Next-token log-probabilities of a model for some sentences; PAD and BOS have probability 0.

    model: network
    memory: prepared sentences
    """

    def __init__(self, model: Seq2Seq, memory: Prepared) -> None:
        self.model = model
        self.memory = memory
        self.device = memory.values.device
        self.mask = memory.mask if model.decoder.attends else None

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, State)
        output = self.model.decode(tokens.unsqueeze(1), state, self.memory, layout)
        log_probs = self.model.output_layer.log_probs(output, self.memory, layout).squeeze(
            1
        )  # [N, V]
        log_probs[:, [PAD, BOS]] = -torch.inf
        weights = None if output.weights is None else output.weights.squeeze(1)  # [N, S]
        return Prediction(log_probs, output.state, weights)

    def keep(self, sentences: Int[Tensor, " b"]) -> ModelStep:
        return ModelStep(self.model, self.memory.select(sentences))


@dataclass(frozen=True)
class EnsembleState:
    """States of several models, row by row."""

    members: tuple[SearchState, ...]

    def select(self, rows: Int[Tensor, " n"]) -> EnsembleState:
        return EnsembleState(tuple(state.select(rows) for state in self.members))


class EnsembleStep:
    """Steps over the same sentences and vocabulary, combined by `average_log_probs`.

    steps: steps of the members
    shares: weights of the members, with sum 1
    averaging: mean of probabilities or of log-probabilities
    """

    def __init__(
        self, steps: Sequence[Step], shares: Sequence[float], averaging: Averaging
    ) -> None:
        self.steps = steps
        self.shares = shares
        self.averaging = averaging
        self.device = steps[0].device
        self.mask = next((step.mask for step in steps if step.mask is not None), None)

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, EnsembleState)
        predictions = [
            step(tokens, member, layout)
            for step, member in zip(self.steps, state.members, strict=True)
        ]
        return Prediction(
            average_log_probs([p.log_probs for p in predictions], self.shares, self.averaging),
            EnsembleState(tuple(p.state for p in predictions)),
            mean_attention([p.weights for p in predictions]),
        )

    def keep(self, sentences: Int[Tensor, " b"]) -> EnsembleStep:
        steps = [step.keep(sentences) for step in self.steps]
        return EnsembleStep(steps, self.shares, self.averaging)


def mean_attention(weights: Sequence[Tensor | None]) -> Tensor | None:
    """Mean over the members that attend to as many positions as the first one with attention.

    Members may read a picture in different grids.
    """
    present = [member for member in weights if member is not None]
    alike = [member for member in present if member.shape == present[0].shape]
    return torch.stack(alike).mean(0) if alike else None


def average_log_probs(
    log_probs: Sequence[Float[Tensor, "*rows"]], shares: Sequence[float], averaging: Averaging
) -> Float[Tensor, "*rows"]:
    """log Σ_m w_m p_m (probability), or Σ_m w_m log p_m (log_probability, not renormalised).

    log_probs: log p of each member
    shares: w of each member, with Σ_m w_m = 1
    """
    if len(log_probs) == 1:
        return log_probs[0]
    members = torch.stack(list(log_probs))  # [members, *rows]
    weights = members.new_tensor(shares).view(-1, *[1] * (members.dim() - 1))
    if averaging == "probability":
        return torch.logsumexp(members + weights.log(), 0)
    return torch.where(members > -torch.inf, members * weights, -torch.inf).sum(0)
