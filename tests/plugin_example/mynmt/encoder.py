"""A bidirectional encoder whose final state is the mean of the annotations."""

from dataclasses import replace

from jaxtyping import Float, Int
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.model.encoder.bidirectional import Bidirectional


class Averaged(Bidirectional):
    """The keys of its configuration are those of `RNNEncoder`."""

    def encode(self, x: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> Encoded:
        encoded = super().encode(x, lengths)
        real = encoded.values * encoded.mask.unsqueeze(-1)  # [B, S, M]
        return replace(encoded, final_state=real.sum(1) / lengths.unsqueeze(1))
