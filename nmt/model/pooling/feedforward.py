"""Feed-forward attention (Raffel & Ellis 2016, eq. 1).

    score(h_s) = tanh(wᵀ h_s + b)

The bias is one number for all positions, so that texts of any length can be read. Since scores lie
between −1 and 1, no weight of T words exceeds e² / (e² + T − 1): in a long text, no single word can
get most of the weight.
"""

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import tanh
from nmt.model.pooling import Pooling


class Feedforward(Pooling):
    """Feed-forward attention."""

    def __init__(self, *, memory_size: int) -> None:
        super().__init__(memory_size=memory_size)
        self.score = nn.Linear(memory_size, 1)

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return tanh(self.score(memory.values))
