"""Encoder of feature grids (Xu et al. 2015, section 3.1.1). A grid contains the features of each
image position, such as the output of the last convolutional layer of a network trained for object
recognition.

    h_p = W x_p + b + position(row, column)        final state = mean_p h_p

x_p are the features of position p and h_p is its annotation. The decoder's first state is computed
from the mean annotation, as in section 3.1.2. The paper uses no position encoding. With a position
encoding, the decoder can learn a reading order. `sinusoidal` is the encoding of Vaswani et al.
2017, section 3.5, with half of the features for the row and half for the column. `learnt` is a
vector for each row and each column.
"""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.data.picture_reader import Reader
from nmt.data.pictures import read_features
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.ranges import Fraction, Width
from nmt.model.encoder import Encoder
from nmt.model.layers.dropout import Dropout
from nmt.model.layers.numeric import xavier
from nmt.model.layers.packed import PackableLinear

LEARNT_POSITIONS = 64
"""Maximum number of rows, and of columns, for which position embeddings are learnt."""
Positions = Literal["none", "learnt", "sinusoidal"]
"""Name of the position encoding added to the annotations of an image: sinusoidal, learnt or
none."""


class Grid(Encoder):
    """Encoder of feature grids of images.

    embedding_size: unused; accepted because all encoders have this argument
    hidden_size: M, number of features of each annotation
    channels: C, input features of each image position
    positions: position encoding added to each annotation: sinusoidal, learnt or none
    feature_dropout: dropout probability of annotation features

    Raises ValueError for sinusoidal positions if hidden_size is not a multiple of 4.
    """

    reads_words: ClassVar[bool] = False
    reads_pictures: ClassVar[bool] = True
    uncapturable: ClassVar[str] = "the encoder reads images"
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
                f"encoder.hidden_size={hidden_size}: must be a multiple of 4 with "
                "encoder.positions=sinusoidal; change the size, or set encoder.positions=learnt"
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
        """Returns the features of each image position, and the numbers of rows and columns of each
        image.

        pictures: B images
        """
        return pictures.values, pictures.sizes

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        """Computes the encoder memory of B images.

        source, lengths: unused; accepted because all encoders have these arguments
        pictures: B images

        Raises ValueError if an image has more rows or columns than there are learnt position
        embeddings.
        """
        assert pictures is not None, "an encoder of images needs data with images"
        features, sizes = self.features(pictures)  # [B, rows, columns, C], [B, 2]
        rows, columns = features.shape[1:3]
        is_real = inside(sizes, rows, columns)  # [B, rows, columns]
        # [B, rows, columns, M]
        values = self.input(features) + self.position(rows, columns, features)
        values = self.dropout((values * is_real.unsqueeze(-1)).flatten(1, 2))  # [B, P, M]
        mask = is_real.flatten(1)  # [B, P]
        # An image may have no position.
        summary = values.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)  # [B, M]
        if not pictures.even:
            values, mask = real_first(values, mask)
        return Encoded(values=values, mask=mask, final_state=summary, grids=sizes)

    def position(
        self, rows: int, columns: int, like: Tensor
    ) -> Float[Tensor, "rows columns M"] | Float[Tensor, ""]:
        """Returns the position embeddings that are added to the annotations; 0 for positions=none.

        rows, columns: numbers of rows and columns of the grid
        like: tensor with the dtype and device of the result

        Raises UserError if there are more rows or columns than learnt position embeddings.
        """
        if self.positions == "none":
            return like.new_zeros(())
        if self.positions == "sinusoidal":
            of_rows = waves(rows, self.memory_size // 2, like).unsqueeze(1)  # [rows, 1, M / 2]
            of_columns = waves(columns, self.memory_size // 2, like)  # [columns, M / 2]
            parts = [of_rows.expand(-1, columns, -1), of_columns.expand(rows, -1, -1)]
            return torch.cat(parts, -1)  # [rows, columns, M]
        if max(rows, columns) > LEARNT_POSITIONS:
            raise UserError(
                f"encoder.positions=learnt supports at most {LEARNT_POSITIONS} x "
                f"{LEARNT_POSITIONS} image positions, but a batch of images has {rows} x "
                f"{columns}: scale the images down, or train with encoder.positions=sinusoidal"
            )
        return self.rows.weight[:rows].unsqueeze(1) + self.columns.weight[:columns]


def inside(sizes: Int[Tensor, "B 2"], rows: int, columns: int) -> Bool[Tensor, "B rows columns"]:
    """Returns a mask that is True for the positions of a grid that lie inside each image.

    sizes: numbers of rows and columns of each image
    rows, columns: numbers of rows and columns of the grid
    """
    in_row = torch.arange(rows, device=sizes.device) < sizes[:, :1]  # [B, rows]
    in_column = torch.arange(columns, device=sizes.device) < sizes[:, 1:]  # [B, columns]
    return in_row.unsqueeze(2) & in_column.unsqueeze(1)


def real_first(values: Float[Tensor, "B P M"], mask: Bool[Tensor, "B P"]) -> tuple[Tensor, Tensor]:
    """Moves padding to the end of values and mask, and keeps the order of all other positions.
    Scores and windows that count positions then give the same result in every batch.

    values: annotations of the positions
    mask: True for positions inside the image
    """
    order = (~mask).long().sort(stable=True, dim=1).indices  # [B, P]
    return values.gather(1, order.unsqueeze(-1).expand_as(values)), mask.gather(1, order)


def waves(count: int, size: int, like: Tensor) -> Float[Tensor, "count size"]:
    """Returns sinusoidal position embeddings: sines and cosines of the positions at size / 2
    frequencies.

    count: number of positions, counted from 0
    size: number of features of each position
    like: tensor with the dtype and device of the result
    """
    # [size/2]
    exponents = torch.arange(0, size, 2, device=like.device) * (-math.log(10_000.0) / size)
    # [count, size/2]
    angles = torch.arange(count, device=like.device).unsqueeze(1) * torch.exp(exponents)
    return torch.cat([angles.sin(), angles.cos()], -1).to(like.dtype)
