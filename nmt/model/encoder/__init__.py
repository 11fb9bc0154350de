"""Encoders: from a source to its memory. An encoder is one file here and one YAML in conf/encoder.

Read: this file, rnn_encoder, bidirectional, unidirectional, alternating, multi_source, grid,
    convolution, multi_modal.
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

BOTH = "bidirectional+grid or bidirectional+convolution"
"""Encoders of words and pictures, for messages."""


class Encoder(nn.Module):
    """Base of all encoders. An encoder owns its input layer, so that no other part depends on the
    kind of source.

    reads_words: whether the network supplies an embedding, which the decoder may share
    reads_pictures: whether the encoder has a `reader` of pictures
    memory_size: M, features of each position of the memory
    cell_name: recurrent cell of an encoder that reads words
    input: module from a source to vectors [B S E]
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
        problem = None
        if cls.reads_pictures and not run.pictures:
            problem = (
                "reads pictures, and this data has none: choose data=captions or data=digits, "
                "or encoder=bidirectional"
            )
        elif run.pictures and not cls.reads_pictures:
            choices = BOTH if run.sources else "grid or convolution"
            problem = f"this data has pictures, and the encoder reads words alone: choose {choices}"
        elif run.pictures and cls.reads_words and not run.sources:
            problem = (
                "reads words and a picture: set data.source, or choose encoder=grid or convolution"
            )
        elif run.pictures and run.sources and not cls.reads_words:
            problem = f"reads only a picture: leave data.source out, or choose encoder={BOTH}"
        if problem:
            yield ConfigError("encoder", problem)

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys that need more than one layer, or dropout."""
        return idle_layers(run, "encoder")

    def take_words(self, words: nn.Module) -> None:
        """Sets the input layer of an encoder of words; the network that owns both calls this once.

        The network draws the words' weights after those of the encoder, and may share them with the
        decoder, so it makes them itself.

        words: module from ids [B S] to vectors [B S E]
        """
        self.input = words

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        """Memory of B sources.

        source: ids, padded with PAD
        lengths: words of each source, EOS included
        pictures: pictures of the sources, if the encoder reads them
        """
        raise NotImplementedError
