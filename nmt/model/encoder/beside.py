"""Two memories of one source, its words and its picture (Multi30k's task; Caglayan et al. 2016; Libovický & Helcl 2017). The
decoder attends to both in one distribution ("flat").

    h = [words; places] along the positions        summary = words' summary + W places' summary

Without a picture there are no places, and the summary is that of the words: exactly the model of words alone.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.ranges import Depth, Fraction, Range, Width
from nmt.model.encoder import Encoder
from nmt.model.encoder.bidirectional import Bidirectional
from nmt.model.encoder.convolution import Convolution
from nmt.model.encoder.grid import Grid, Positions, packed
from nmt.model.layers.cells import CellName
from nmt.model.layers.recurrence import DropoutOf


class Beside(Encoder):
    """Encoders of words and of pictures with the same memory size side by side."""

    reads_pictures: ClassVar[bool] = True

    def __init__(self, words: Encoder, places: Grid) -> None:
        super().__init__()
        assert words.memory_size == places.memory_size
        self.words, self.places = words, places
        self.memory_size, self.cell_name, self.reader = (
            words.memory_size,
            words.cell_name,
            places.reader,
        )
        self.join = nn.Linear(self.memory_size, self.memory_size, bias=False)
        nn.init.xavier_uniform_(self.join.weight)

    def take_words(self, words: nn.Module) -> None:
        self.words.take_words(words)

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        read, seen = self.words(source, lengths), self.places(source, lengths, pictures)
        values = torch.cat([read.values, seen.values.to(read.values.dtype)], 1)
        values, mask = packed(values, torch.cat([read.mask, seen.mask], 1))
        summary = read.final_state + self.join(seen.final_state)
        return Encoded(values=values, mask=mask, final_state=summary, grids=seen.grids)


class BidirectionalGrid(Beside):
    """A bidirectional recurrence over words beside a grid of features; see `RNNEncoder` and `Grid` for the keys."""

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
        channels: Width = 512,
        positions: Positions = "sinusoidal",
        feature_dropout: Fraction = 0.0,
    ) -> None:
        words = _words(locals())
        places = Grid(
            embedding_size=embedding_size, hidden_size=words.memory_size, channels=channels, positions=positions,
            feature_dropout=feature_dropout,
        )  # fmt: skip
        super().__init__(words, places)


class BidirectionalConvolution(Beside):
    """A bidirectional recurrence over words beside a convolutional network; see `RNNEncoder` and `Convolution` for the keys."""

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
        channels: Literal[1, 3] = 3,
        longest: Annotated[int, Range(8, 4096)] = 128,
        widths: list[Width],
        halvings: Annotated[int, Range(0, 10)] = 3,
        norm: bool = True,
        positions: Positions = "sinusoidal",
        feature_dropout: Fraction = 0.0,
    ) -> None:
        words = _words(locals())
        places = Convolution(
            embedding_size=embedding_size, hidden_size=words.memory_size, channels=channels, longest=longest, widths=widths,
            halvings=halvings, norm=norm, positions=positions, feature_dropout=feature_dropout,
        )  # fmt: skip
        super().__init__(words, places)


OF_WORDS = (
    "embedding_size", "hidden_size", "num_layers", "cell", "transition_depth", "residual", "dropout", "variational_dropout",
    "recurrent_dropout", "recurrent_dropout_of", "layer_norm",
)  # fmt: skip


def _words(keys: dict[str, Any]) -> Bidirectional:
    return Bidirectional(**{name: keys[name] for name in OF_WORDS})
