"""The mean of all positions: a control that cannot choose.

score(h_s) = 0
"""

from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooling


class Mean(Pooling):
    """The mean, without parameters."""

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return memory.values.new_zeros(*memory.mask.shape, 1)
