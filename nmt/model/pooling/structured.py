"""Structured self-attention (Lin et al. 2017, eq. 5-8).

    A = softmax_s(W₂ tanh(W₁ Hᵀ))
    features = A H
    penalty = ‖A Aᵀ − I‖²

H contains the annotation of each position s as a row, A contains the weights of each of r hops as
a row, and I is the identity matrix. The penalty discourages the hops from attending to the same
words.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.foundation.ranges import NonNegative, Width
from nmt.model.layers.numeric import tanh
from nmt.model.pooling import Pooled, Pooling, gather


class Structured(Pooling):
    """Pooling by self-attention with several hops (Lin et al. 2017).

    hops: number of weighted sums per text
    hidden_size: number of hidden units of the scores
    penalty: weight of the penalty on similar hops, added to the loss of each text
    """

    def __init__(
        self, *, memory_size: int, hops: Width, hidden_size: Width, penalty: NonNegative
    ) -> None:
        super().__init__(memory_size=hops * memory_size)
        self.penalty = penalty
        self.hidden = nn.Linear(memory_size, hidden_size, bias=False)
        self.hops = nn.Linear(hidden_size, hops, bias=False)

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return self.hops(tanh(self.hidden(memory.values)))

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        weights = self.weights(memory)  # A, [N, r, S]
        overlap = torch.bmm(weights, weights.transpose(1, 2))  # [N, r, r]
        overlap = overlap - torch.eye(weights.size(1), device=weights.device)  # A Aᵀ − I, [N, r, r]
        penalty = self.penalty * overlap.square().sum((1, 2))  # [N]
        return Pooled(gather(weights, memory), weights, penalty)
