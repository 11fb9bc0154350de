"""Scaled dot-product attention (Vaswani et al. 2017, eq. 1).

    score(q, h) = qᵀ h / √K

q is the decoder state and h an annotation, both of size K.
"""

from jaxtyping import Float
from torch import Tensor

from nmt.model.attention.dot import Dot


class ScaledDot(Dot):
    """Dot-product attention score divided by √K for vectors of size K. If all entries are
    independent with mean 0 and variance 1, the score has variance 1."""

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T S"]:
        return super().forward(query * keys.size(-1) ** -0.5, keys)
