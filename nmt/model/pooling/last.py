"""The encoder's last state alone: a control without attention, and with no weights to show.

features = [→h_S; ←h_1]
"""

from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooled, Pooling


class Last(Pooling):
    """The last state."""

    attends = False

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        return Pooled(memory.final_state)
