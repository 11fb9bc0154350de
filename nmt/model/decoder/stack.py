"""Stacked unidirectional recurrent layers whose recurrence does not depend on attention."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from nmt.model.layers.dropout import Dropout
from nmt.model.layers.recurrence import CellState, Recurrent


class Stack(nn.Module):
    """Stacked recurrent layers, optionally with residual connections (Wu et al. 2016). Without
    layers, the module is the identity.

    layers: recurrent layers, lowest first
    dropout: dropout applied to the input of every layer except layer 0 of the decoder
    residual: whether each layer except layer 0 adds its input to its output
    first: index, within the decoder, of the lowest layer of the stack
    """

    def __init__(
        self, layers: Sequence[Recurrent], dropout: Dropout, residual: bool, first: int = 0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout = dropout
        self.residual = residual
        self.first = first

    def forward(
        self, x: Float[Tensor, "N T I"], cells: tuple[CellState, ...], masks: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "N T Q"], tuple[CellState, ...]]:
        """Returns the outputs of the top layer, and the state of each layer after the last step.

        x: inputs of the lowest layer
        cells: initial state of each layer
        masks: dropout masks by name: "between i" and "inside i" for layer i
        """
        final_cells = []
        for i, (layer, cell) in enumerate(zip(self.layers, cells, strict=True), self.first):
            below = self.dropout(x, masks.get(f"between {i}")) if i else x
            y, cell = layer(below, cell, mask=masks.get(f"inside {i}"))  # [N, T, Q]
            x = x + y if self.residual and i else y  # [N, T, Q]
            final_cells.append(cell)
        return x, tuple(final_cells)
