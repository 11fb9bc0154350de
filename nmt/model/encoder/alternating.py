"""The encoder whose layers read in turns: the first from left to right, the second from right to left, and so on (Zhou et
al. 2016, interleaved bidirectional encoder). From the second layer on, every position knows the whole sentence."""

from jaxtyping import Float, Int
from torch import Tensor

from nmt.model.encoder.rnn_encoder import RNNEncoder
from nmt.model.layers.recurrence import at_end, reversal, take


class Alternating(RNNEncoder):
    """Memory size hidden_size; the summary is the state of the top layer when it has read the sentence."""

    def run(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        if i % 2 == 0:
            outputs, _ = self.layers[i](x)
            return outputs, at_end(outputs, lengths)
        order = reversal(lengths, x.size(1))
        outputs, _ = self.layers[i](take(x, order))
        return take(outputs, order), at_end(outputs, lengths)
