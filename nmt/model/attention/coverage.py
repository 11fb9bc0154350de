"""Additive attention with past attention as an input: Tu et al. 2016, eq. 8 (linguistic coverage, eq. 6 and 7).

score(q_t, h_s) = vᵀ tanh(W q_t + U h_s + V C_{t−1,s} + b)
C_{t,s} = Σ_{i≤t} α_is / Φ_s        Φ_s = N σ(U_f h_s), the fertility: how many words position s may become
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.ranges import Positive, Width
from nmt.model.attention import Score
from nmt.model.layers.packed import PackableLinear


class Coverage(Score):
    """`size` hidden units; `fertility` is N, the most words that one source position may become."""

    recurs = True

    def __init__(
        self, *, query_size: int, memory_size: int, size: Width, fertility: Positive
    ) -> None:
        super().__init__()
        self.query_layer = PackableLinear(query_size, size, bias=False)
        self.key_layer = PackableLinear(memory_size, size)
        self.fertility_layer = nn.Linear(memory_size, 1, bias=False)
        self.fertility = fertility
        self.v, self.coverage = (
            nn.Parameter(torch.empty(size).uniform_(-1, 1) * size**-0.5) for _ in range(2)
        )

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        """U h + b, and Φ in the last place."""
        return torch.cat(
            [self.key_layer(values), self.fertility * torch.sigmoid(self.fertility_layer(values))],
            -1,
        )

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        covered = attended[0] / keys[..., -1].unsqueeze(1)
        hidden = (
            query.unsqueeze(2) + keys[..., :-1].unsqueeze(1) + covered.unsqueeze(-1) * self.coverage
        )
        return torch.tanh(hidden) @ self.v
