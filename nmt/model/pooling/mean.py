"""The mean of all positions: a control that cannot choose."""

from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooled, Pooling, distribute, gather


class Mean(Pooling):
    def __init__(self, *, memory_size: int) -> None:
        super().__init__(memory_size)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        weights = distribute(memory.values.new_zeros(*memory.mask.shape, 1), memory)
        return Pooled(gather(weights, memory), weights)
