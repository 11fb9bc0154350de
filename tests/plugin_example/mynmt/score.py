"""Cosine attention, score(q, h) = β cos(Wq, h): Graves et al. 2014, eq. 5-6."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.foundation.ranges import Positive
from nmt.model.attention import Score


class Cosine(Score):
    """sharpness: initial value of β, which is learnt."""

    def __init__(self, *, query_size: int, memory_size: int, sharpness: Positive = 5.0) -> None:
        super().__init__()
        self.query_layer = nn.Linear(query_size, memory_size, bias=False)
        self.sharpness = nn.Parameter(torch.tensor(float(sharpness)))

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return F.normalize(values, dim=-1)

    def forward(
        self, query: Float[Tensor, "B T P"], keys: Float[Tensor, "B S K"], *_: Tensor
    ) -> Float[Tensor, "B T S"]:
        return self.sharpness * torch.bmm(F.normalize(query, dim=-1), keys.transpose(1, 2))
