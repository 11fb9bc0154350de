"""The bidirectional recurrent encoder (Schuster & Paliwal 1997; Bahdanau et al. 2015, section 3.2).

h_s = [→h_s; ←h_s]        summary = [→h_S; ←h_1]
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.encoder import Encoder
from nmt.foundation.interfaces import Memory
from nmt.foundation.ranges import Depth, Fraction, Width
from nmt.layers.dropout import Dropout
from nmt.layers.recurrence import CellName, Recurrent


class Bidirectional(Encoder):
    """`num_layers` bidirectional layers of `hidden_size` units per direction; memory size 2·hidden_size.

    `dropout` acts between layers, `layer_norm` normalises each layer's output.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: Width,
        num_layers: Depth = 1,
        cell: CellName = "gru",
        dropout: Fraction = 0.0,
        variational_dropout: bool = False,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.memory_size, self.cell_name = 2 * hidden_size, cell
        sizes = [embedding_size] + [self.memory_size] * (num_layers - 1)
        self.layers = nn.ModuleList(Recurrent(cell, size, hidden_size, directions=2) for size in sizes)
        self.norms = nn.ModuleList(
            nn.LayerNorm(self.memory_size) if layer_norm else nn.Identity() for _ in range(num_layers)
        )
        self.dropout = Dropout(dropout, variational_dropout)

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """The memory of B sentences; `lengths` in tokens, EOS included."""
        x = self.input(source)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            x, (last, *_) = layer(self.dropout(x) if i else x, lengths=lengths)
            x, summary = norm(x), norm(last)
        mask = torch.arange(x.size(1), device=x.device) < lengths.unsqueeze(1)
        return Memory(values=x, mask=mask, summary=summary)
