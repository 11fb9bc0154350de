"""Pooling: one vector for a whole text, by an attention without a query. A pooling is one file here and one YAML in
conf/pooling.

    α_s = softmax_s(score(h_s))        features = Σ_s α_s h_s

Imported by: network.
Read: this file, mean, word_context, the rest in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Memory
from nmt.layers.recurrence import full


@dataclass(frozen=True)
class Pooled:
    """Features of B texts; the weights of H hops over the positions of their rows, which for each hop sum to 1 over a
    text's rows, padding getting exactly 0 (None: the pooling has none to show); and a term of the loss of each text."""

    features: Float[Tensor, "B F"]
    weights: Float[Tensor, "N H S"] | None = None
    penalty: Float[Tensor, " B"] | None = None


class Pooling(nn.Module):
    """Built with the `memory_size` of the encoder; makes `feature_size` numbers of a text.

    A text is one row of the memory; where the pooling `splits`, a row for each of its sentences, `counts` of them. One that
    `attends` has weights to show.
    """

    splits = False
    attends = True
    feature_size: int

    def __init__(self, memory_size: int) -> None:
        super().__init__()
        self.feature_size = memory_size

    def forward(self, memory: Memory, counts: Int[Tensor, " B"]) -> Pooled:
        raise NotImplementedError


def distribute(scores: Float[Tensor, "N S H"], memory: Memory) -> Float[Tensor, "N H S"]:
    """softmax over the real positions of each row."""
    return full(scores).masked_fill(~memory.mask.unsqueeze(-1), -torch.inf).softmax(1).transpose(1, 2)


def gather(weights: Float[Tensor, "N H S"], memory: Memory) -> Float[Tensor, "N HM"]:
    """The weighted sums of each hop, side by side."""
    return torch.bmm(weights.to(memory.values.dtype), memory.values).flatten(1)
