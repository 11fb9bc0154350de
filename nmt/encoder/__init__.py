"""What reads a source and makes the memory. An encoder is one file here and one YAML in conf/encoder.

Imported by: network, configuration.
Read: this file, layered, bidirectional, unidirectional, alternating, several.
"""

from __future__ import annotations

from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Memory
from nmt.layers.cells import CellName


class Encoder(nn.Module):
    """Base of all encoders.

    An encoder owns its `input`, the module that turns a source into vectors [B S E], so only the encoder knows what a
    source is. An encoder of words gets its embedding table from the network, which may share it with the decoder.
    `memory_size` is M, the features of each position of the memory; `cell_name` is the kind of recurrent cell.
    """

    memory_size: int
    cell_name: CellName
    input: nn.Module

    def forward(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """The memory of B sources; `lengths` in positions."""
        raise NotImplementedError
