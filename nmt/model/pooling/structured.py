"""Structured self-attention: Lin et al. 2017, eq. 5-8.

A = softmax_s(W₂ tanh(W₁ Hᵀ))        features = A H, a row for each of r hops        penalty ‖A Aᵀ − I‖²

The penalty keeps the hops apart; without it they all look at the same words.
"""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.foundation.ranges import NonNegative, Width
from nmt.model.layers.numeric import tanh
from nmt.model.pooling import Pooled, Pooling, distribute, gather


class Structured(Pooling):
    """`hops`: r; `hidden_size`: rows of W₁; `penalty`: the weight of the penalty (squared Frobenius norm, of each text) in
    the loss."""

    def __init__(
        self, *, memory_size: int, hops: Width, hidden_size: Width, penalty: NonNegative
    ) -> None:
        super().__init__(memory_size)
        self.feature_size, self.penalty = hops * memory_size, penalty
        self.hidden = nn.Linear(memory_size, hidden_size, bias=False)
        self.hops = nn.Linear(hidden_size, hops, bias=False)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        weights = distribute(self.hops(tanh(self.hidden(memory.values))), memory)
        overlap = torch.bmm(weights, weights.transpose(1, 2)) - torch.eye(
            weights.size(1), device=weights.device
        )
        return Pooled(gather(weights, memory), weights, self.penalty * overlap.square().sum((1, 2)))
