"""A small convolutional network for images, trained from scratch; its last layer is the grid that attention looks at.

    x ← pool(relu(W * x + b))        for each layer, W of 3 x 3; the first `halvings` layers take the maximum of 2 x 2 places

What lies outside an image is 0 for every layer, also where a larger image in the batch has something there, so an image has
the same annotations in every batch.
"""

from functools import partial
from typing import Annotated, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.data.pictures import Reader, read_image
from nmt.foundation.interfaces import Pictures
from nmt.foundation.ranges import Fraction, Range, Width
from nmt.model.encoder.grid import Grid, Positions, inside


class Convolution(Grid):
    """Reads images with `channels` 1 (grey) or 3 (colours) and at most `longest` pixels a side: larger ones are scaled down.
    `widths`: features of each layer; the last are normalised (`norm`) and projected to `hidden_size`.

    Raises ValueError if there are more halvings than layers."""

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
        if not widths or halvings > len(widths):
            raise ValueError(
                f"encoder.halvings={halvings}: encoder.widths has {len(widths)} layers, and each halves rows and columns at "
                f"most once; set encoder.halvings={len(widths)} or less"
            )
        self.longest, self.width = longest, widths[-1]
        super().__init__(
            embedding_size=embedding_size, hidden_size=hidden_size, channels=widths[-1], positions=positions,
            feature_dropout=feature_dropout,
        )  # fmt: skip
        self.halvings = halvings
        self.layers = nn.ModuleList(
            nn.Conv2d(size, width, 3, padding=1)
            for size, width in zip([channels, *widths[:-1]], widths, strict=True)
        )
        for layer in self.layers:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        self.norm = nn.LayerNorm(widths[-1]) if norm else nn.Identity()
        self.reader = Reader(partial(read_image, longest=longest), channels)

    def features(
        self, pictures: Pictures
    ) -> tuple[Float[Tensor, "B rows columns C"], Int[Tensor, "B 2"]]:
        x, sizes = (
            1 - pictures.values.permute(0, 3, 1, 2),
            pictures.sizes,
        )  # [B C rows columns], white paper is 0
        if x.size(2) == 0:
            return x.new_zeros(len(x), 0, 0, self.width), sizes
        x = _cleared(x, sizes, pictures.even)
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(x))
            x = _cleared(x, sizes, pictures.even)
            if i < self.halvings:
                x, sizes = F.max_pool2d(x, 2, ceil_mode=True), (sizes + 1) // 2
        return self.norm(x.permute(0, 2, 3, 1)), sizes


def _cleared(x: Float[Tensor, "B C rows columns"], sizes: Int[Tensor, "B 2"], even: bool) -> Tensor:
    """Zeros outside of each picture."""
    return x if even else x * inside(sizes, *x.shape[2:]).unsqueeze(1).to(x.dtype)
