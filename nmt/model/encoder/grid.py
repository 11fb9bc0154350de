"""The encoder of Xu et al. 2015 (section 3.1.1): the annotations of a picture are features of its
positions, such as the last convolutional layer of a network that was trained to recognise objects.

    h_p = W x_p + b + position(row, column)        summary = mean_p h_p

The decoder's first state is made from the mean annotation, as in section 3.1.2. The attention of
the paper needs no positions. With them, the decoder can learn an order of reading. `sinusoidal` are
the features of Vaswani et al. 2017, section 3.5, half of them for the row and half for the column.
`learnt` is a vector for each row and each column.
"""

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
from nmt.model.layers.numeric import xavier
from nmt.model.layers.packed import PackableLinear

LEARNT_POSITIONS = 64
"""Rows and columns that have learnt vectors."""
Positions = Literal["none", "learnt", "sinusoidal"]


class Grid(Encoder):
    """Encoder of grids of features.

    embedding_size: not used
    hidden_size: M, features of each annotation
    channels: C, features of each position of a picture
    positions: encoding of the position that is added to each annotation
    feature_dropout: dropout of the annotations

    Raises ValueError if sinusoidal positions cannot share the features.
    """

    reads_words: ClassVar[bool] = False
    reads_pictures: ClassVar[bool] = True
    input: PackableLinear

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
                f"encoder.hidden_size={hidden_size}: sinusoidal positions need a multiple of 4, a "
                "sine and a cosine of row and column; or set encoder.positions=learnt"
            )
        self.memory_size = hidden_size
        self.positions = positions
        self.input = xavier(PackableLinear(channels, hidden_size))
        if positions == "learnt":
            self.rows = nn.Embedding(LEARNT_POSITIONS, hidden_size)
            self.columns = nn.Embedding(LEARNT_POSITIONS, hidden_size)
            for table in (self.rows, self.columns):
                nn.init.normal_(table.weight, std=hidden_size**-0.5)
        self.dropout = Dropout(feature_dropout)
        self.reader = Reader(read_features, channels)

    def features(
        self, pictures: Pictures
    ) -> tuple[Float[Tensor, "B rows columns C"], Int[Tensor, "B 2"]]:
        """Features of each position, and the number of rows and columns of each picture.

        pictures: B pictures
        """
        return pictures.values, pictures.sizes

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        """Memory of B pictures.

        source, lengths: not used; a picture has no words
        pictures: the pictures

        Raises ValueError for pictures with more rows or columns than learnt vectors.
        """
        assert pictures is not None, "the data names pictures: see Seq2Seq"
        features, sizes = self.features(pictures)  # [B, rows, columns, C], [B, 2]
        rows, columns = features.shape[1:3]
        is_real = inside(sizes, rows, columns)  # [B, rows, columns]
        # [B, rows, columns, M]
        values = self.input(features) + self.position(rows, columns, features)
        values = self.dropout((values * is_real.unsqueeze(-1)).flatten(1, 2))  # [B, P, M]
        mask = is_real.flatten(1)  # [B, P]
        # A picture may have no position at all.
        summary = values.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)  # [B, M]
        if not pictures.even:
            values, mask = real_first(values, mask)
        return Encoded(values=values, mask=mask, final_state=summary, grids=sizes)

    def position(
        self, rows: int, columns: int, like: Tensor
    ) -> Float[Tensor, "rows columns M"] | Float[Tensor, ""]:
        """Vectors that are added to the annotations of each position; 0 without positions.

        rows, columns: size of the grid
        like: tensor that has the type and the device of the result

        Raises ValueError if there are more rows or columns than learnt vectors.
        """
        if self.positions == "none":
            return like.new_zeros(())
        if self.positions == "sinusoidal":
            of_rows = waves(rows, self.memory_size // 2, like).unsqueeze(1)  # [rows, 1, M / 2]
            of_columns = waves(columns, self.memory_size // 2, like)  # [columns, M / 2]
            parts = [of_rows.expand(-1, columns, -1), of_columns.expand(rows, -1, -1)]
            return torch.cat(parts, -1)
        if max(rows, columns) > LEARNT_POSITIONS:
            raise ValueError(
                f"a picture of {rows} x {columns} places: encoder.positions=learnt has vectors for "
                f"{LEARNT_POSITIONS} x {LEARNT_POSITIONS}; use sinusoidal"
            )
        return self.rows.weight[:rows].unsqueeze(1) + self.columns.weight[:columns]


def inside(sizes: Int[Tensor, "B 2"], rows: int, columns: int) -> Bool[Tensor, "B rows columns"]:
    """Whether each position of a grid is in the picture.

    sizes: rows and columns of each picture
    rows, columns: size of the grid
    """
    in_row = torch.arange(rows, device=sizes.device) < sizes[:, :1]  # [B, rows]
    in_column = torch.arange(columns, device=sizes.device) < sizes[:, 1:]  # [B, columns]
    return in_row.unsqueeze(2) & in_column.unsqueeze(1)


def real_first(values: Float[Tensor, "B P M"], mask: Bool[Tensor, "B P"]) -> tuple[Tensor, Tensor]:
    """Values and mask with the real positions first, in their order, and all padding after them.

    Scores and windows that count positions then find the same in every batch.

    values: annotations
    mask: positions that are in the picture
    """
    order = (~mask).long().sort(stable=True, dim=1).indices  # [B, P]
    return values.gather(1, order.unsqueeze(-1).expand_as(values)), mask.gather(1, order)


def waves(count: int, size: int, like: Tensor) -> Float[Tensor, "count size"]:
    """Sines and cosines of 0, 1, 2 … at size / 2 frequencies.

    count: number of positions
    size: features of each position
    like: tensor that has the type and the device of the result
    """
    # [size/2]
    exponents = torch.arange(0, size, 2, device=like.device) * (-math.log(10_000.0) / size)
    # [count, size/2]
    angles = torch.arange(count, device=like.device).unsqueeze(1) * torch.exp(exponents)
    return torch.cat([angles.sin(), angles.cos()], -1).to(like.dtype)
