"""Text vector from the encoder's final state: a baseline without attention.

    features = [→h_S; ←h_1]

The result is the concatenation of the last states of the two encoder directions. There are no
attention weights to display.
"""

from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooled, Pooling


class Last(Pooling):
    """Pooling that returns the encoder's final state, without attention."""

    attends = False

    def forward(self, memory: Encoded, counts: Int[Tensor, " B"]) -> Pooled:
        return Pooled(memory.final_state)
