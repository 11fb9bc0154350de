"""One network or an ensemble as the `Step` that searches use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Int
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
    """Next-word log-probabilities of a model over the memory of some sentences; PAD and BOS are never produced."""

    def __init__(self, model: Seq2Seq, memory: Prepared) -> None:
        self.model, self.memory = model, memory
        self.device = memory.values.device
        self.mask = memory.mask if model.decoder.attends else None

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, State)
        output = self.model.decode(tokens.unsqueeze(1), state, self.memory, layout)
        log_probs = self.model.log_probs(output, self.memory, layout).squeeze(1)
        log_probs[:, [PAD, BOS]] = -torch.inf
        return Prediction(
            log_probs, output.state, None if output.weights is None else output.weights.squeeze(1)
        )

    def keep(self, sentences: Int[Tensor, " b"]) -> ModelStep:
        return ModelStep(self.model, self.memory.select(sentences))


@dataclass(frozen=True)
class EnsembleState:
    """The states of several models, row by row."""

    members: tuple[SearchState, ...]

    def select(self, rows: Int[Tensor, " n"]) -> EnsembleState:
        return EnsembleState(tuple(state.select(rows) for state in self.members))


class EnsembleStep:
    """Several steps over the same sentences and the same vocabulary, combined into one by `average_log_probs`. The
    attention is the mean over the members that have attention."""

    def __init__(
        self, steps: Sequence[Step], shares: Sequence[float], averaging: Averaging
    ) -> None:
        self.steps, self.shares, self.averaging = steps, shares, averaging
        self.device = steps[0].device
        self.mask = next((step.mask for step in steps if step.mask is not None), None)

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        assert isinstance(state, EnsembleState)
        each = [step(tokens, s, layout) for step, s in zip(self.steps, state.members, strict=True)]
        log_probs = average_log_probs([p.log_probs for p in each], self.shares, self.averaging)
        weights = alike([p.weights for p in each if p.weights is not None])
        mean = torch.stack(weights).mean(0) if weights else None
        return Prediction(log_probs, EnsembleState(tuple(p.state for p in each)), mean)

    def keep(self, sentences: Int[Tensor, " b"]) -> EnsembleStep:
        return EnsembleStep(
            [step.keep(sentences) for step in self.steps], self.shares, self.averaging
        )


def alike(weights: Sequence[Tensor]) -> list[Tensor]:
    """The attention of those members that have as many positions as the first: others see a picture in another grid."""
    return [each for each in weights if each.shape == weights[0].shape]


def average_log_probs(
    each: Sequence[Tensor], shares: Sequence[float], averaging: Averaging
) -> Tensor:
    """log Σ_m w_m p_m (probability), or Σ_m w_m log p_m (log_probability, not renormalised); Σ_m w_m = 1."""
    if len(each) == 1:
        return each[0]
    stacked = torch.stack(list(each))
    shares_ = stacked.new_tensor(shares).view(-1, *[1] * (stacked.dim() - 1))
    if averaging == "probability":
        return torch.logsumexp(stacked + shares_.log(), 0)
    return torch.where(stacked > -torch.inf, stacked * shares_, -torch.inf).sum(0)
