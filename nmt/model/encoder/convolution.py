"""Small convolutional network for images, trained from scratch. The output of its last layer is the
grid of annotations.

    x ← pool(relu(W * x + b))        for each layer, with 3 x 3 kernels W

pool is 2 x 2 max pooling, in the first `halvings` layers only. In every layer, positions outside
an image are zeros, even where a larger image of the batch has pixels. An image therefore has the
same annotations in every batch.
"""

from typing import Annotated, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.picture_reader import Reader
from nmt.data.pictures import read_image
from nmt.foundation.interfaces import Pictures
from nmt.foundation.ranges import Fraction, Range, Width
from nmt.model.encoder.grid import Grid, Positions, inside


class Convolution(Grid):
    """Convolutional encoder of images.

    embedding_size: unused; accepted because all encoders have this argument
    hidden_size: M, number of features of each annotation
    channels: 1 for grey images, 3 for colour images
    longest: maximum length of the longer side in pixels; larger images are scaled down
    widths: number of output features of each layer
    halvings: number of layers that halve the number of rows and columns
    norm: whether the last layer is followed by layer normalisation
    positions: position encoding added to each annotation: sinusoidal, learnt or none
    feature_dropout: dropout probability of annotation features

    Raises ValueError if `halvings` exceeds the number of layers.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        hidden_size: Width,
        channels: Literal[1, 3] = 3,
        longest: Annotated[int, Range(8, 4096)] = 128,
        widths: list[Width],
        halvings: Annotated[int, Range(0, 10)] = 3,
        norm: bool = True,
        positions: Positions = "sinusoidal",
        feature_dropout: Fraction = 0.0,
    ) -> None:
        if not widths:
            raise ValueError("encoder.widths=[]: needs at least one layer, such as [32,64,128]")
        if halvings > len(widths):
            raise ValueError(
                f"encoder.halvings={halvings} must be at most {len(widths)}, the number of "
                "layers in encoder.widths"
            )
        super().__init__(
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            channels=widths[-1],
            positions=positions,
            feature_dropout=feature_dropout,
        )
        self.halvings = halvings
        self.layers = nn.ModuleList(
            nn.Conv2d(size, width, 3, padding=1)
            for size, width in zip([channels, *widths[:-1]], widths, strict=True)
        )
        for layer in self.layers:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(widths[-1]) if norm else nn.Identity()
        self.reader = Reader(read_image, channels, longest=longest)

    def features(
        self, pictures: Pictures
    ) -> tuple[Float[Tensor, "B rows columns C"], Int[Tensor, "B 2"]]:
        sizes = pictures.sizes
        x = 1 - pictures.values.permute(0, 3, 1, 2)  # [B, C, rows, columns], white is 0
        if x.size(2) == 0:
            return x.new_zeros(len(x), 0, 0, self.input.in_features), sizes
        x = _cleared(x, sizes, pictures.even)
        for i, layer in enumerate(self.layers):
            x = _cleared(F.relu(layer(x)), sizes, pictures.even)  # [B, width, rows, columns]
            if i < self.halvings:
                x = F.max_pool2d(x, 2, ceil_mode=True)  # [B, C, ⌈rows / 2⌉, ⌈columns / 2⌉]
                sizes = (sizes + 1) // 2
        return self.norm(x.permute(0, 2, 3, 1)), sizes  # [B, rows, columns, C], [B, 2]


def _cleared(x: Float[Tensor, "B C rows columns"], sizes: Int[Tensor, "B 2"], even: bool) -> Tensor:
    """Returns a batch of feature maps with zeros at the positions beyond each image's size (padding)."""
    return x if even else x * inside(sizes, *x.shape[2:]).unsqueeze(1).to(x.dtype)
