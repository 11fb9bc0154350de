"""Scaled dot-product attention, score(q, h) = qᵀ h / √K: Vaswani et al. 2017, eq. 1."""

from jaxtyping import Float
from torch import Tensor

from nmt.model.attention.dot import Dot


class ScaledDot(Dot):
    """qᵀ h / √K: the scores have variance 1 if the entries of q and h are independent with variance 1."""

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        return super().forward(query * keys.size(-1) ** -0.5, keys)
