"""Encoders: networks that map a source to the memory that the decoder attends to. Each encoder is
one file in this folder and one YAML file in conf/encoder.

Modules in reading order: this file, rnn_encoder, bidirectional, unidirectional, reversed,
alternating, multi_source, grid, convolution, multi_modal.
"""

from collections.abc import Iterator
from typing import ClassVar

from jaxtyping import Int
from torch import Tensor, nn

from nmt.data.picture_reader import Reader
from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.part_limits import ConfigError, RunView, broken
from nmt.model.layers.cells import CellName
from nmt.model.layers.dropout import idle_layers

BOTH = "bidirectional+grid or bidirectional+convolution"
"""Names of the encoders that read both text and images; quoted in error messages."""


class Encoder(nn.Module):
    """Base class of encoders. An encoder owns its input layer, so no other component depends on the
    type of source (text or images).

    reads_words: whether the encoder reads text; the network supplies the embedding, which the
        decoder may share
    reads_pictures: whether the encoder reads images
    reader: loader of the image files; None if the encoder reads no images
    memory_size: M, number of features of each memory position
    cell_name: name of the recurrent cell of an encoder that reads text
    input: module that maps a source to vectors [B, S, E]
    """

    reads_words: ClassVar[bool] = True
    reads_pictures: ClassVar[bool] = False
    reader: Reader | None = None
    memory_size: int
    cell_name: CellName
    input: nn.Module

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if the encoder does not read the type of source in the data: text, images
        or both."""
        choices = BOTH if run.sources else "grid or convolution"
        has_images = run.pictures and cls.reads_pictures
        yield from broken(
            (
                cls.reads_pictures and not run.pictures,
                "encoder",
                "the encoder reads images, but this data has none; choose data=captions or "
                "data=digits, or encoder=bidirectional",
            ),
            (
                run.pictures and not cls.reads_pictures,
                "encoder",
                f"the encoder reads only text, but the data has images; choose encoder={choices}",
            ),
            (
                has_images and cls.reads_words and not run.sources,
                "encoder",
                "the encoder reads text and images, but the data has no source text; set "
                "data.source, or choose encoder=grid or convolution",
            ),
            (
                has_images and run.sources and not cls.reads_words,
                "encoder",
                "the encoder reads only images, but the data also has source text; leave "
                f"data.source out, or choose encoder={BOTH}",
            ),
        )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the configuration keys that have no effect in this run, each with the reason,
        for example that the network has a single layer, or that dropout is 0."""
        return idle_layers(run, "encoder")

    def take_words(self, words: nn.Module) -> None:
        """Sets the input layer of an encoder of text. The network calls this method once, in its
        constructor.

        The network creates the input layer because it initialises the embedding after the encoder,
        and may share it with the decoder.

        words: module from token ids [B, S] to vectors [B, S, E]
        """
        self.input = words

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        """Computes the encoder memory of B sources.

        source: token ids, padded with PAD
        lengths: number of tokens of each source, EOS included
        pictures: images of the sources, if the encoder reads images
        """
        raise NotImplementedError


BASE = Encoder
"""Base class that every encoder in a configuration must extend."""
