"""Encoder of a text together with an image (Caglayan et al. 2016; Libovický & Helcl 2017). One
attention distribution covers the positions of text and image ("flat" combination).

    h = [text annotations; image annotations], concatenated along the positions
    final state = final state of the text + W · final state of the image

Without an image, the annotations and the final state are those of the text encoder alone. Unlike in
Libovický & Helcl 2017, the attention projects both kinds of annotations with the same parameters.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded, Pictures
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Nested
from nmt.model.encoder import Encoder
from nmt.model.encoder.grid import Grid, real_first
from nmt.model.encoder.rnn_encoder import RNNEncoder
from nmt.model.layers.dropout import idle_layers
from nmt.model.layers.numeric import xavier


class MultiModal(Encoder):
    """Encoder of text and images, with the memory size of the text encoder.

    embedding_size: E, length of an embedding vector
    words: factory of the text encoder, a function of `embedding_size`; the configuration sets all
        other arguments
    places: factory of the image encoder, a function of `embedding_size` and of `hidden_size`, the
        memory size of the text encoder; the configuration sets all other arguments
    """

    reads_pictures: ClassVar[bool] = True

    def __init__(
        self,
        *,
        embedding_size: int,
        words: Annotated[Callable[..., RNNEncoder], Nested(RNNEncoder, ("embedding_size",))],
        places: Annotated[Callable[..., Grid], Nested(Grid, ("embedding_size", "hidden_size"))],
    ) -> None:
        super().__init__()
        self.words = words(embedding_size=embedding_size)
        self.memory_size = self.words.memory_size
        self.places = places(embedding_size=embedding_size, hidden_size=self.memory_size)
        self.cell_name = self.words.cell_name
        self.reader = self.places.reader
        self.join = xavier(nn.Linear(self.memory_size, self.memory_size, bias=False))

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        return idle_layers(run, "encoder.words")

    def take_words(self, words: nn.Module) -> None:
        self.words.take_words(words)

    def forward(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Encoded:
        words = self.words(source, lengths)
        places = self.places(source, lengths, pictures)
        values = torch.cat([words.values, places.values.to(words.values.dtype)], 1)  # [B, W + P, M]
        # Windows and location scores count positions without padding.
        values, mask = real_first(values, torch.cat([words.mask, places.mask], 1))
        final_state = words.final_state + self.join(places.final_state)  # [B, M]
        return Encoded(values=values, mask=mask, final_state=final_state, grids=places.grids)
