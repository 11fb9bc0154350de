"""Location-based attention, score(h_t, s) = (W h_t)_s: Luong et al. 2015, eq. 3. It looks at positions, not at words."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nmt.foundation.ranges import Width
from nmt.model.attention import Score
from nmt.model.layers.packed import PackableLinear


class Location(Score):
    """W has a row for each of the first `longest` source positions; later positions get the score of the last row."""

    def __init__(self, *, query_size: int, memory_size: int, longest: Width) -> None:
        super().__init__()
        self.query_layer = PackableLinear(query_size, longest, bias=False)

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return values[..., :1]

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        positions = torch.arange(keys.size(1), device=query.device).clamp(max=query.size(-1) - 1)
        return F.embedding(positions, query.permute(2, 0, 1).flatten(1)).T.reshape(
            *query.shape[:2], -1
        )
