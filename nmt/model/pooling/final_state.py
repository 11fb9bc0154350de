"""Dot-product attention with the encoder's final state as the query (Luong et al. 2015, section
3.1, applied within one text).

    score(h_s) = h_sᵀ [→h_S; ←h_1]

h_s is the annotation of position s. The query is the encoder's final state: the last states of the
two encoder directions, concatenated.
"""

from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.pooling import Pooling


class FinalState(Pooling):
    """Pooling by attention with the encoder's final state as the query, without parameters."""

    def scores(self, memory: Encoded) -> Float[Tensor, "N S H"]:
        return memory.values @ memory.final_state.to(memory.values.dtype).unsqueeze(-1)
