"""Additive attention with coverage: the total attention of earlier steps is an input of the score
(Tu et al. 2016, eq. 8; linguistic coverage, eq. 6 and 7).

    score(q_t, h_s) = vᵀ tanh(W q_t + U h_s + V C_{t−1,s} + b)
    C_{t,s} = Σ_{i≤t} α_is / Φ_s        Φ_s = N σ(U_f h_s)

q_t is the decoder state of step t, h_s the annotation of source position s, and α_is the weight of
s in step i. v, W, U, V, b and U_f are parameters. The fertility Φ_s is the expected number of
target tokens for source position s, at most N.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.ranges import Positive, Width
from nmt.model.attention import Score
from nmt.model.layers.packed import PackableLinear


class Coverage(Score):
    """Additive attention score function with coverage (Tu et al. 2016).

    size: number of hidden units
    fertility: maximum number of target tokens for one source position
    """

    recurs = True

    def __init__(
        self, *, query_size: int, memory_size: int, size: Width, fertility: Positive
    ) -> None:
        super().__init__()
        self.query_layer = PackableLinear(query_size, size, bias=False)
        self.key_layer = PackableLinear(memory_size, size)
        self.fertility_layer = nn.Linear(memory_size, 1, bias=False)
        self.fertility = fertility
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1).mul_(size**-0.5))  # [size]
        self.coverage = nn.Parameter(torch.empty(size).uniform_(-1, 1).mul_(size**-0.5))  # [size]

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        """Returns the attention keys: projected annotations, with the fertility of each position as
        the last feature."""
        hidden = self.key_layer(values)  # [B, S, size]
        # The lower bound keeps the quotient of coverage and fertility, and its gradient, finite.
        share = torch.sigmoid(self.fertility_layer(values)).clamp(min=1e-6)  # [B, S, 1]
        return torch.cat([hidden, self.fertility * share], -1)  # [B, S, size + 1]

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        coverage = attended[0] / keys[..., -1].unsqueeze(1)  # [B, T, S]
        inputs = query.unsqueeze(2) + keys[..., :-1].unsqueeze(1)  # [B, T, S, size]
        return torch.tanh(inputs + coverage.unsqueeze(-1) * self.coverage) @ self.v
