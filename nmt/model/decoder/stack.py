"""Unidirectional recurrent layers on top of one another, where nothing recurs through attention."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from nmt.model.layers.dropout import Dropout
from nmt.model.layers.recurrence import CellState, Recurrent


class Stack(nn.Module):
    """h^l = RNN^l(h^{l-1}), plus h^{l-1} if `residual` (Wu et al. 2016). Without layers it is the
    identity.

    layers: the layers, lowest first
    dropout: dropout before every layer except layer 0 of the decoder
    residual: each layer but layer 0 adds its input to its output
    first: number of the lowest of the layers in the whole decoder
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
        """Outputs of the top layer, and each layer's state after the last step.

        x: inputs of the lowest layer
        cells: state of each layer
        masks: dropout masks, see `Decoder.masks`
        """
        final_cells = []
        for i, (layer, cell) in enumerate(zip(self.layers, cells, strict=True), self.first):
            below = self.dropout(x, masks.get(f"between {i}")) if i else x
            y, cell = layer(below, cell, mask=masks.get(f"inside {i}"))  # [N, T, Q]
            x = x + y if self.residual and i else y
            final_cells.append(cell)
        return x, tuple(final_cells)
