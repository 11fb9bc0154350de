"""Max pooling: the largest value of each feature over all positions.

    features_f = max_s h_sf

h_sf is feature f of the annotation of position s. The weight displayed for a position is the
fraction of features whose maximum lies at the position.
"""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import to_float
from nmt.model.pooling import Pooled, Pooling


class Max(Pooling):
    """Max pooling over all positions, without parameters."""

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        # [N, S, M]
        values = to_float(memory.values).masked_fill(~memory.mask.unsqueeze(-1), -torch.inf)
        largest = values.max(1)  # values and positions, [N, M] each
        shares = F.one_hot(largest.indices, memory.mask.size(1)).to(values.dtype).mean(1)  # [N, S]
        return Pooled(largest.values, shares.unsqueeze(1))  # [N, M], [N, 1, S]
