"""Location-based attention (Luong et al. 2015, eq. 8): scores source positions independently of
their tokens.

    score(h_t, s) = (W h_t)_s

h_t is the decoder state of step t, and W a parameter with one row per source position s.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from nmt.foundation.ranges import Width
from nmt.model.attention import Score
from nmt.model.layers.packed import PackableLinear


class Location(Score):
    """Location-based attention score function, computed from the decoder state alone.

    longest: number of positions with separate parameters; later positions get the score of the last
        of these positions (the paper ignores them)
    """

    def __init__(self, *, query_size: int, memory_size: int, longest: Width) -> None:
        super().__init__()
        self.query_layer = PackableLinear(query_size, longest, bias=False)

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        # [S]
        positions = torch.arange(keys.size(1), device=query.device).clamp(max=query.size(-1) - 1)
        rows = F.embedding(positions, query.permute(2, 0, 1).flatten(1))  # [S, B·T]
        return rows.T.reshape(*query.shape[:2], -1)
