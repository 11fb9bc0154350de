"""The encoder that reads from left to right (Luong et al. 2015, section 3; Sutskever et al. 2014).

h_s = RNN(x_s, h_{s-1})        summary = h_S
"""

from jaxtyping import Float, Int
from torch import Tensor

from nmt.model.encoder.rnn_encoder import RNNEncoder
from nmt.model.layers.recurrence import at_end


class Unidirectional(RNNEncoder):
    """Every layer reads from left to right; memory size hidden_size."""

    def run(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        outputs, _ = self.layers[i](x)
        return outputs, at_end(outputs, lengths)
