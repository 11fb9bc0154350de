"""What reads a source and makes the memory. An encoder is one file here and one YAML in conf/encoder.

Read: this file, layered, bidirectional, unidirectional, alternating, several, grid, convolution,
beside.
"""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Int
from torch import Tensor, nn

from nmt.data.pictures import Reader
from nmt.foundation.interfaces import Encoded, Pictures
from nmt.model.layers.cells import CellName


class Encoder(nn.Module):
    """Base of all encoders.

    An encoder owns its `input`, the module that turns a source into vectors [B S E], so only the encoder knows what a
    source is. An encoder that `reads_words` gets its embedding table from the network, which may share it with the decoder;
    one that `reads_pictures` has a `reader` of them. `memory_size` is M, the features of each position of the memory;
    `cell_name` is the kind of recurrent cell of one that reads words.
    """

    reads_words: ClassVar[bool] = True
    reads_pictures: ClassVar[bool] = False
    reader: Reader | None = None
    memory_size: int
    cell_name: CellName
    input: nn.Module

    def take_words(self, words: nn.Module) -> None:
        """From now on, `words` turns ids into vectors."""
        self.input = words

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        """The memory of B sources; `lengths` in words, EOS included."""
        raise NotImplementedError
