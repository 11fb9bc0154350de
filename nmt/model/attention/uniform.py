"""The control: every position gets the same weight for every query. What a model gains over it is due to attention."""

from jaxtyping import Float
from torch import Tensor

from nmt.model.attention import Score


class Uniform(Score):
    """score = 0, without parameters."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return values[..., :1]

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        return query.new_zeros(query.size(0), query.size(1), keys.size(1))
