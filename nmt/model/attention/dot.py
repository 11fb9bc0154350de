"""Dot-product attention, score(q, h) = qᵀ h: `dot` in Luong et al. 2015, eq. 8."""

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.model.attention import Score


class Dot(Score):
    """qᵀ h, without parameters; queries and memory must have the same size.

    Raises ValueError if they have not.
    """

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        if query_size != memory_size:
            name = type(self).__name__
            raise ValueError(
                f"attention: {name} compares the decoder state ({query_size}) with the memory ({memory_size}) number by "
                f"number, so the sizes must agree: set decoder.hidden_size={memory_size} (two encoder directions), or "
                "choose attention=general, which maps one to the other"
            )

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return values

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        return torch.bmm(query, keys.transpose(1, 2))
