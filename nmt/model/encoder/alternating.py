"""Interleaved bidirectional encoder (Zhou et al. 2016): layers read in alternating directions.

    h^1_s = RNN^1(x_s, h^1_{s-1})        h^2_s = RNN^2(h^1_s, h^2_{s+1})        …

x_s is the embedding of source position s, and h^l_s the output of layer l. From layer 2 on, every
position depends on the whole sentence.
"""

from jaxtyping import Float, Int
from torch import Tensor

from nmt.model.encoder.rnn_encoder import RNNEncoder


class Alternating(RNNEncoder):
    """Encoder whose layers alternate in direction. Layers 0, 2, 4, … read from left to right,
    layers 1, 3, 5, … from right to left.

    The memory size is hidden_size. The final state is the last state of the top layer.
    """

    def run(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        run = self.run_backwards if i % 2 else super().run
        return run(i, x, lengths)
