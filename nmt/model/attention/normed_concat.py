"""Weight-normalised additive attention, score(q, h) = g vᵀ/‖v‖ tanh(W q + U h + b): weight normalisation (Salimans & Kingma
2016, eq. 2) of v, "normed Bahdanau" of tensorflow/nmt."""

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.ranges import Width
from nmt.model.attention.concat import Concat


class NormedConcat(Concat):
    """As concat, but the length g of v and its direction are learnt separately; g is initialised to ‖v‖."""

    def __init__(self, *, query_size: int, memory_size: int, size: Width) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size, size=size)
        self.scale = nn.Parameter(self.v.detach().norm().clone())

    @property
    def direction(self) -> Float[Tensor, " K"]:
        return self.scale * self.v / self.v.norm()
