"""Stacked recurrent layers: base class of the recurrent encoders.

    h^l_s = RNN^l(h^{l-1}_s, h^l_{s-1})        final state = h_S of the top layer

h^l_s is the output of layer l at source position s (1 to S); h^0_s is the embedding. The final
state is that of the recurrence, without the input that `residual` adds to the outputs.
"""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.ranges import Depth, Fraction, Width
from nmt.model.encoder import Encoder
from nmt.model.layers.cells import CellName, recurrent
from nmt.model.layers.dropout import Dropout
from nmt.model.layers.recurrence import DropoutOf, at_end, reversal, take


class RNNEncoder(Encoder):
    """Stacked recurrent layers over the source tokens. By default, each layer reads from left to
    right.

    embedding_size: E, length of an embedding vector
    hidden_size: number of units per direction
    num_layers: number of stacked layers
    cell: name of the recurrent cell: gru, lstm, norm_gru or norm_lstm
    transition_depth: number of consecutive cells in each time step
    residual: whether each layer except the first adds its input to its output
    dropout: dropout probability between layers
    variational_dropout: whether all positions of a sentence share one dropout mask
    recurrent_dropout: probability of recurrent dropout, 0 to 1
    recurrent_dropout_of: target of recurrent dropout: state or update
    layer_norm: whether layer normalisation is applied to the output of each layer
    """

    directions: ClassVar[int] = 1

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: Width,
        num_layers: Depth = 1,
        cell: CellName = "gru",
        transition_depth: Depth = 1,
        residual: bool = False,
        dropout: Fraction = 0.0,
        variational_dropout: bool = False,
        recurrent_dropout: Fraction = 0.0,
        recurrent_dropout_of: DropoutOf = "state",
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.memory_size = self.directions * hidden_size
        self.cell_name = cell
        self.residual = residual
        sizes = [embedding_size] + [self.memory_size] * (num_layers - 1)  # inputs of each layer
        self.layers = nn.ModuleList(
            recurrent(
                cell,
                size,
                hidden_size,
                self.directions,
                depth=transition_depth,
                dropout=recurrent_dropout,
                dropout_of=recurrent_dropout_of,
            )
            for size in sizes
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(self.memory_size) if layer_norm else nn.Identity() for _ in sizes
        )
        self.dropout = Dropout(dropout, variational_dropout)

    def run(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        """Returns the outputs of layer i at each position, and the final state of the layer.

        i: index of the layer, from 0
        x: inputs of the layer
        lengths: number of tokens of each source
        """
        outputs, _ = self.layers[i](x)  # [B, S, M]
        return outputs, at_end(outputs, lengths)

    def run_backwards(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        """Returns the same as `run` for a layer that reads from right to left. The outputs keep the
        order of the source."""
        order = reversal(lengths, x.size(1))  # [B, S]
        outputs, _ = self.layers[i](take(x, order))  # [B, S, M]
        return take(outputs, order), at_end(outputs, lengths)

    def encode(self, x: Float[Tensor, "B S E"], lengths: Int[Tensor, " B"]) -> Encoded:
        """Computes the encoder memory of B sources.

        x: input vectors of the tokens
        lengths: number of tokens of each source
        """
        for i, norm in enumerate(self.norms):
            y, final_state = self.run(i, self.dropout(x) if i else x, lengths)  # [B, S, M], [B, M]
            y = norm(y)
            x = x + y if self.residual and i else y  # [B, S, M]
        mask = torch.arange(x.size(1), device=x.device) < lengths.unsqueeze(1)  # [B, S]
        return Encoded(values=x, mask=mask, final_state=self.norms[-1](final_state))

    def forward(
        self,
        source: Int[Tensor, "B S"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        return self.encode(self.input(source), lengths)
