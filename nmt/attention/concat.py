"""Additive attention, score(q, h) = vᵀ tanh(W q + U h + b): Bahdanau et al. 2015, appendix A.1.2; `concat` in Luong et
al. 2015, eq. 8 (one matrix on the concatenation [q; h] is W and U side by side)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention import Score
from nmt.ranges import Size
from nmt.recurrence import tanh


class Concat(Score):
    """vᵀ tanh(W q + U h + b), with `size` hidden units."""

    def __init__(self, *, query_size: int, memory_size: int, size: Size) -> None:
        super().__init__()
        self.query_layer = nn.Linear(query_size, size, bias=False)
        self.key_layer = nn.Linear(memory_size, size)
        self.v = nn.Parameter(torch.empty(size).uniform_(-1, 1) * size**-0.5)

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return self.key_layer(values)

    def forward(self, query: Float[Tensor, "B T P"], keys: Float[Tensor, "B S K"]) -> Float[Tensor, "B T S"]:
        return torch.mv(tanh(query.unsqueeze(2) + keys.unsqueeze(1)).flatten(0, 2), self.v).view(
            query.size(0), query.size(1), keys.size(1)
        )
