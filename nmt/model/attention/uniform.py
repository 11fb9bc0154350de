"""Uniform attention: equal weights for all positions. As a baseline, uniform attention shows how
much learnt attention weights contribute.

    score(q, h) = 0

q is the decoder state and h an annotation.
"""

from jaxtyping import Float
from torch import Tensor

from nmt.model.attention import Score


class Uniform(Score):
    """Uniform attention score function: equal scores for all positions, without parameters."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        return query.new_zeros(query.size(0), query.size(1), keys.size(1))
