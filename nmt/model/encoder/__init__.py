"""Encoders: from a source to its memory. An encoder is one file here and one YAML in conf/encoder.

Read: this file, rnn_encoder, bidirectional, unidirectional, alternating, multi_source, grid, convolution, multi_modal.
"""

from collections.abc import Iterator
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor, nn

from nmt.data.pictures import Reader
from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.model.layers.cells import CellName
from nmt.model.layers.dropout import idle_layers


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

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Words or pictures that the encoder needs and the data lacks, or the other way round."""
        both = "bidirectional+grid or bidirectional+convolution"
        if not run.pictures:
            if cls.reads_pictures:
                yield ConfigError(
                    "encoder",
                    "reads pictures, and this data has none: choose data=captions or data=digits, "
                    "or encoder=bidirectional",
                )
        elif not cls.reads_pictures:
            choose = both if run.sources else "grid or convolution"
            yield ConfigError(
                "encoder",
                f"this data has pictures, and the encoder reads words alone: choose {choose}",
            )
        elif cls.reads_words and not run.sources:
            yield ConfigError(
                "encoder",
                "reads words and a picture: set data.source, or choose encoder=grid or convolution",
            )
        elif run.sources and not cls.reads_words:
            yield ConfigError(
                "encoder",
                f"reads only a picture: leave data.source out, or choose encoder={both}",
            )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys that need more than one layer, or dropout."""
        return idle_layers(run, "encoder")

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
