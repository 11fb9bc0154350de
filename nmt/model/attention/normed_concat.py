"""Additive attention with weight normalisation of v (Salimans & Kingma 2016, eq. 2; "normed
Bahdanau" of tensorflow/nmt).

    score(q, h) = g vᵀ/‖v‖ tanh(W q + U h + b)

q is the decoder state and h an annotation; g, v, W, U and b are parameters.
"""

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.ranges import Width
from nmt.model.attention.concat import Concat


class NormedConcat(Concat):
    """Additive attention score function that learns the norm and the direction of the vector v
    separately (weight normalisation). The vector v maps the hidden units to the score.

    size: number of hidden units
    """

    def __init__(self, *, query_size: int, memory_size: int, size: Width) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, size=size)
        self.scale = nn.Parameter(self.v.detach().norm().clone())  # g, the norm of v

    @property
    def direction(self) -> Float[Tensor, " K"]:
        return self.scale * self.v / self.v.norm()
