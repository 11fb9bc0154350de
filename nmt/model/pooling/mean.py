"""Mean pooling: equal weights for all positions, as a baseline without learnt attention.

    score(h_s) = 0

h_s is the annotation of position s.
"""

from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooling


class Mean(Pooling):
    """Mean pooling over all positions, without parameters."""

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return memory.values.new_zeros(*memory.mask.shape, 1)  # equal scores give equal weights
