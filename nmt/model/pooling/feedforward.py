"""Feed-forward attention (Raffel & Ellis 2016, eq. 1).

    score(h_s) = tanh(wᵀ h_s + b)

h_s is the annotation of position s; w and b are parameters. The bias b is shared by all positions,
so texts of any length can be read. Scores lie between −1 and 1, so in a text of T words no weight
exceeds e² / (e² + T − 1). In a long text, no single word can dominate.
"""

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import tanh
from nmt.model.pooling import Pooling


class Feedforward(Pooling):
    """Pooling by feed-forward attention (Raffel & Ellis 2016)."""

    def __init__(self, *, memory_size: int) -> None:
        super().__init__(memory_size=memory_size)
        self.score = nn.Linear(memory_size, 1)

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return tanh(self.score(memory.values))
