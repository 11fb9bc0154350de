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

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        return values * values.size(-1) ** -0.5
