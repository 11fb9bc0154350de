"""Scaled bilinear attention ("scaled Luong" of tensorflow/nmt).

    score(q, h) = g qᵀ W h

q is the decoder state, h an annotation; the scalar g and the matrix W are parameters.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.model.attention.general import General


class ScaledGeneral(General):
    """Bilinear attention score multiplied by a learnt scalar g, initialised to 1."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__(query_size=query_size, memory_size=memory_size)
        self.scale = nn.Parameter(torch.ones(()))  # g, the scale

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return self.scale * super().keys(values)
