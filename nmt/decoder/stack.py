"""Unidirectional recurrent layers on top of one another, for what does not recur through attention."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from nmt.layers.dropout import Dropout
from nmt.layers.recurrence import Cell, CellName, Recurrent


class Stack(nn.Module):
    """h^l = RNN^l(h^{l-1}), dropout between layers; no layers: the identity."""

    def __init__(self, cell: CellName, input_size: int, hidden_size: int, num_layers: int, dropout: Dropout) -> None:
        super().__init__()
        sizes = [input_size] + [hidden_size] * (num_layers - 1)
        self.layers = nn.ModuleList(Recurrent(cell, size, hidden_size) for size in sizes[:num_layers])
        self.dropout = dropout

    def forward(
        self, x: Float[Tensor, "N T I"], cells: tuple[Cell, ...]
    ) -> tuple[Float[Tensor, "N T Q"], tuple[Cell, ...]]:
        """Outputs of the top layer and each layer's state after the last step."""
        after = []
        for i, (layer, cell) in enumerate(zip(self.layers, cells, strict=True)):
            x, cell = layer(self.dropout(x) if i else x, cell)
            after.append(cell)
        return x, tuple(after)
