"""The interleaved bidirectional encoder (Zhou et al. 2016): layers read in alternating directions.

h^1_s = RNN^1(x_s, h^1_{s-1})        h^2_s = RNN^2(h^1_s, h^2_{s+1})        …

From the second layer on, every position depends on the whole sentence.
"""

from jaxtyping import Float, Int
from torch import Tensor

from nmt.model.encoder.rnn_encoder import RNNEncoder
from nmt.model.layers.recurrence import reversal, take


class Alternating(RNNEncoder):
    """Layers that read in turn: even ones, from 0, from left to right, odd ones from right to left.

    The memory size is hidden_size. The summary is the state of the top layer when it has read the
    sentence.
    """

    def run(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        if i % 2 == 0:
            return super().run(i, x, lengths)
        order = reversal(lengths, x.size(1))  # [B, S]
        outputs, final_state = super().run(i, take(x, order), lengths)
        return take(outputs, order), final_state
