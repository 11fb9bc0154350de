"""Attention with a learnt context vector as the query (Yang et al. 2016, eq. 5-7).

    u_s = tanh(W h_s + b)        score(h_s) = vᵀ u_s

h_s is the annotation of position s; W, b and the context vector v are parameters.
"""

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.foundation.ranges import Width
from nmt.model.layers.numeric import tanh
from nmt.model.pooling import Pooling


class WordContext(Pooling):
    """Pooling by attention with a learnt context vector.

    hidden_size: length of the context vector
    """

    def __init__(self, *, memory_size: int, hidden_size: Width) -> None:
        super().__init__(memory_size=memory_size)
        self.hidden = nn.Linear(memory_size, hidden_size)
        self.context = nn.Linear(hidden_size, 1, bias=False)

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return self.context(tanh(self.hidden(memory.values)))
