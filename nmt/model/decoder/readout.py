"""Maxout readout (Goodfellow et al. 2013) of Bahdanau et al. 2015, appendix A.2.2.

    t̃ = U s + V E y + C c        readout_k = max(t̃_{2k-1}, t̃_{2k})

s is the decoder state, E y the embedding of the previous token, and c the context. U, V and C are
parameters.
"""

from jaxtyping import Float
from torch import Tensor, nn

from nmt.model.layers.numeric import xavier
from nmt.model.layers.packed import PackableLinear


class Maxout(nn.Module):
    """Linear layer followed by the element-wise maximum of its two halves.

    input_size: features of the concatenated inputs
    size: features of the readout
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.layer = xavier(PackableLinear(input_size, 2 * size))

    def forward(self, x: Float[Tensor, "N T I"]) -> Float[Tensor, "N T D"]:
        first, second = self.layer(x).chunk(2, -1)  # [N, T, D] each
        return first.maximum(second)
