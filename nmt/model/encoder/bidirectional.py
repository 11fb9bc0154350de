"""Bidirectional recurrent encoder (Schuster & Paliwal 1997; Bahdanau et al. 2015, section 3.2).

    h_s = [→h_s; ←h_s]        final state = [→h_S; ←h_1]

→h_s and ←h_s are the states of the two directions at source position s (1 to S).
"""

from jaxtyping import Float, Int
from torch import Tensor

from nmt.model.encoder.rnn_encoder import RNNEncoder


class Bidirectional(RNNEncoder):
    """Encoder whose layers read in both directions. The input of each layer is the output of both
    directions of the layer below. The memory size is 2·hidden_size."""

    directions = 2

    def run(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        outputs, (final_state, *_) = self.layers[i](x, lengths=lengths)  # [B, S, M], [B, M]
        return outputs, final_state
