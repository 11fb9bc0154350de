"""The largest value of each feature: a control that chooses feature by feature. A position's weight is the share of the
features that come from it."""

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional as F

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import to_float
from nmt.model.pooling import Pooled, Pooling


class Max(Pooling):
    def __init__(self, *, memory_size: int) -> None:
        super().__init__(memory_size)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        found = to_float(memory.values).masked_fill(~memory.mask.unsqueeze(-1), -torch.inf).max(1)
        shares = F.one_hot(found.indices, memory.mask.size(1)).to(found.values.dtype).mean(1)
        return Pooled(found.values, shares.unsqueeze(1))
