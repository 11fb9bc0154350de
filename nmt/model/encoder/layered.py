"""Recurrent layers on top of one another: what the recurrent encoders share."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.ranges import Depth, Fraction, Width
from nmt.model.encoder import Encoder
from nmt.model.layers.cells import CellName, recurrent
from nmt.model.layers.dropout import Dropout
from nmt.model.layers.recurrence import DropoutOf


class RNNEncoder(Encoder):
    """`num_layers` layers of `hidden_size` units per direction. `dropout` acts between layers, `recurrent_dropout` inside
    them; `residual`: every layer but the first adds its input to its output; `transition_depth`: see `Recurrent`;
    `layer_norm` normalises each layer's output."""

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
        self.memory_size, self.cell_name, self.residual = (
            self.directions * hidden_size,
            cell,
            residual,
        )
        sizes = [embedding_size] + [self.memory_size] * (num_layers - 1)
        inside = {
            "depth": transition_depth,
            "dropout": recurrent_dropout,
            "dropout_of": recurrent_dropout_of,
        }
        self.layers = nn.ModuleList(
            recurrent(cell, size, hidden_size, self.directions, **inside) for size in sizes
        )  # type: ignore[arg-type]
        self.norms = nn.ModuleList(
            nn.LayerNorm(self.memory_size) if layer_norm else nn.Identity()
            for _ in range(num_layers)
        )
        self.dropout = Dropout(dropout, variational_dropout)

    def run(
        self, i: int, x: Float[Tensor, "B S I"], lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B S M"], Float[Tensor, "B M"]]:
        """Layer i: its output at each position, and its state when it has read the sentence."""
        raise NotImplementedError

    def forward(
        self,
        source: Int[Tensor, "B S"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        """The memory of B sentences; `lengths` in tokens, EOS included."""
        x = self.input(source)
        for i, norm in enumerate(self.norms):
            y, last = self.run(i, self.dropout(x) if i else x, lengths)
            y, summary = norm(y), norm(last)
            x = x + y if self.residual and i else y
        mask = torch.arange(x.size(1), device=x.device) < lengths.unsqueeze(1)
        return Encoded(values=x, mask=mask, final_state=summary)
