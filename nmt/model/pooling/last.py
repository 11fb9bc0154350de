"""The encoder's last state alone, [→h_S; ←h_1]: a control without attention, and with no weights to show."""

from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooled, Pooling


class Last(Pooling):
    attends = False

    def __init__(self, *, memory_size: int) -> None:
        super().__init__(memory_size)

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        return Pooled(memory.final_state)
