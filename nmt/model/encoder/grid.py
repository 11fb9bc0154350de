"""The encoder of Xu et al. 2015 (section 3.1.1): annotations of a picture are features of its places, such as the last
convolutional layer of a network that was trained to recognise things.

    h_p = W x_p + b + position(row, column)        summary = mean_p h_p

The decoder's first state is made from the mean annotation, as in section 3.1.2. The attention of the paper needs no
positions; they let it learn an order of reading. `sinusoidal`: half of the features are those of Vaswani et al. 2017,
section 3.5, of the row, half those of the column; `learnt`: a vector for each row and each column."""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.data.pictures import Reader, read_features
from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.ranges import Fraction, Width
from nmt.model.encoder import Encoder
from nmt.model.layers.dropout import Dropout
from nmt.model.layers.packed import PackableLinear

MOST = 64
"""Rows and columns that have learnt vectors."""
Positions = Literal["none", "learnt", "sinusoidal"]


class Grid(Encoder):
    """Reads `channels` features of each place; the memory has `hidden_size` features. `feature_dropout`: of the
    annotations. Raises ValueError if sinusoidal positions cannot share the features."""

    reads_words: ClassVar[bool] = False
    reads_pictures: ClassVar[bool] = True

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: Width,
        channels: Width = 512,
        positions: Positions = "sinusoidal",
        feature_dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        if positions == "sinusoidal" and hidden_size % 4:
            raise ValueError(
                f"encoder.hidden_size={hidden_size}: sinusoidal positions need a multiple of 4, a sine and a cosine of row "
                "and column; or set encoder.positions=learnt"
            )
        self.memory_size, self.positions = hidden_size, positions
        self.input = PackableLinear(channels, hidden_size)
        nn.init.xavier_uniform_(self.input.weight)
        nn.init.zeros_(self.input.bias)
        if positions == "learnt":
            self.rows, self.columns = (
                nn.Embedding(MOST, hidden_size),
                nn.Embedding(MOST, hidden_size),
            )
            for table in (self.rows, self.columns):
                nn.init.normal_(table.weight, std=hidden_size**-0.5)
        self.dropout = Dropout(feature_dropout)
        self.reader = self.make_reader(channels)

    def make_reader(self, channels: int) -> Reader:
        return Reader(read_features, channels)

    def features(
        self, pictures: Pictures
    ) -> tuple[Float[Tensor, "B rows columns C"], Int[Tensor, "B 2"]]:
        """The features of each place, and how many rows and columns each picture has."""
        return pictures.values, pictures.sizes

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        """The memory of B pictures; `source` has no words. Raises ValueError for more rows or columns than learnt ones."""
        assert pictures is not None, "the data names pictures: see Seq2Seq"
        features, sizes = self.features(pictures)
        rows, columns = features.shape[1:3]
        real = inside(sizes, rows, columns)
        values = self.input(features) + self.position(rows, columns, features)
        values, mask = self.dropout((values * real.unsqueeze(-1)).flatten(1, 2)), real.flatten(1)
        summary = values.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        if not pictures.even:
            values, mask = real_first(values, mask)
        return Encoded(values=values, mask=mask, final_state=summary, grids=sizes)

    def position(
        self, rows: int, columns: int, like: Tensor
    ) -> Float[Tensor, "rows columns M"] | Tensor:
        """What is added to the annotation of each place."""
        if self.positions == "none":
            return like.new_zeros(())
        if self.positions == "sinusoidal":
            half = self.memory_size // 2
            each = [waves(count, half, like) for count in (rows, columns)]
            return torch.cat(
                [each[0].unsqueeze(1).expand(-1, columns, -1), each[1].expand(rows, -1, -1)], -1
            )
        if max(rows, columns) > MOST:
            raise ValueError(
                f"a picture of {rows} x {columns} places: encoder.positions=learnt has vectors for {MOST} x {MOST}; use "
                "sinusoidal"
            )
        return self.rows.weight[:rows].unsqueeze(1) + self.columns.weight[:columns]


def inside(sizes: Int[Tensor, "B 2"], rows: int, columns: int) -> Bool[Tensor, "B rows columns"]:
    """Which places are in the picture."""
    down, right = (
        torch.arange(rows, device=sizes.device),
        torch.arange(columns, device=sizes.device),
    )
    return (down < sizes[:, :1]).unsqueeze(2) & (right < sizes[:, 1:]).unsqueeze(1)


def real_first(values: Float[Tensor, "B P M"], mask: Bool[Tensor, "B P"]) -> tuple[Tensor, Tensor]:
    """What is real first, in its order, and all padding after it, so that scores and windows that count positions find
    the same in every batch."""
    order = (~mask).long().sort(stable=True, dim=1).indices
    return values.gather(1, order.unsqueeze(-1).expand_as(values)), mask.gather(1, order)


def waves(count: int, size: int, like: Tensor) -> Float[Tensor, "count size"]:
    """Sines and cosines of 0, 1, 2 … at `size`/2 frequencies."""
    frequencies = torch.exp(
        torch.arange(0, size, 2, device=like.device) * (-math.log(10_000.0) / size)
    )
    angles = torch.arange(count, device=like.device).unsqueeze(1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1).to(like.dtype)
