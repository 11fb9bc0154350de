"""Unidirectional recurrent layers on top of one another, for what does not recur through attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from nmt.model.layers.dropout import Dropout
from nmt.model.layers.recurrence import CellState, Recurrent


class Stack(nn.Module):
    """h^l = RNN^l(h^{l-1}), plus h^{l-1} if `residual` (Wu et al. 2016); dropout before each layer but number 0; no layers:
    the identity. `first`: the number of the lowest of the layers, counted in the whole decoder."""

    def __init__(
        self, layers: Sequence[Recurrent], dropout: Dropout, residual: bool, first: int = 0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.dropout, self.residual, self.first = dropout, residual, first

    def forward(
        self, x: Float[Tensor, "N T I"], cells: tuple[CellState, ...], masks: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "N T Q"], tuple[CellState, ...]]:
        """Outputs of the top layer and each layer's state after the last step. `masks`: see `State`."""
        after = []
        for i, (layer, cell) in enumerate(zip(self.layers, cells, strict=True), self.first):
            below = self.dropout(x, masks.get(f"between {i}")) if i else x
            y, cell = layer(below, cell, mask=masks.get(f"inside {i}"))
            x = x + y if self.residual and i else y
            after.append(cell)
        return x, tuple(after)
