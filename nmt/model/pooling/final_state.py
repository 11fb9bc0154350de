"""Dot-product attention whose query is the encoder's last state (Luong et al. 2015, eq. 8, within
one text).

score(h_s) = h_sᵀ [→h_S; ←h_1]
"""

from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooling


class FinalState(Pooling):
    """Attention of the last state, without parameters."""

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return memory.values @ memory.final_state.to(memory.values.dtype).unsqueeze(-1)
