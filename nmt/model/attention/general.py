"""Bilinear attention (`general` in Luong et al. 2015, section 3.1).

    score(q, h) = qᵀ W h

q is the decoder state, h an annotation, and W a parameter.
"""

from jaxtyping import Float
from torch import Tensor

from nmt.model.attention import Score
from nmt.model.layers.packed import PackableLinear


class General(Score):
    """Bilinear attention score qᵀ W h of query q and annotation h. W h is computed once per
    sentence."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        self.key_layer = PackableLinear(memory_size, query_size, bias=False)

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return self.key_layer(values)
