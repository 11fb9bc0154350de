"""Dot-product attention whose query is the encoder's last state: Luong et al. 2015, eq. 8, within one text.

α_s = softmax_s(h_sᵀ [→h_S; ←h_1])
"""

from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooled, Pooling, distribute, gather


class FinalState(Pooling):
    def __init__(self, *, memory_size: int) -> None:
        super().__init__(memory_size)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        weights = distribute(
            memory.values @ memory.final_state.to(memory.values.dtype).unsqueeze(-1), memory
        )
        return Pooled(gather(weights, memory), weights)
