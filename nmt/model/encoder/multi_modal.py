"""Two memories of one source, its words and its picture (Multi30k's task; Caglayan et al. 2016; Libovický & Helcl 2017).
The decoder attends to both in one distribution ("flat").

    h = [words; places] along the positions        final state = words' final state + W places' final state

Without a picture there are no places, and the final state is that of the words: exactly the model of words alone.
"""

import inspect
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded, Pictures
from nmt.model.encoder import Encoder
from nmt.model.encoder.bidirectional import Bidirectional
from nmt.model.encoder.convolution import Convolution
from nmt.model.encoder.grid import Grid, real_first
from nmt.model.encoder.rnn_encoder import RNNEncoder


class MultiModal(Encoder):
    """An encoder of words and an encoder of pictures with the same memory size.

    A subclass names the two classes. Its constructor has the keys of both, except that the memory size of the words is
    the `hidden_size` of the pictures.
    """

    reads_pictures: ClassVar[bool] = True
    words_class: ClassVar[type[RNNEncoder]]
    places_class: ClassVar[type[Grid]]

    def __init_subclass__(cls) -> None:
        def __init__(self: MultiModal, **keys: Any) -> None:
            MultiModal.__init__(self, **keys)

        parameters = _parameters(cls.places_class) | _parameters(cls.words_class)
        # A configuration is checked against the signature of the constructor.
        __init__.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
        __init__.__annotations__ = {
            name: parameter.annotation for name, parameter in parameters.items() if name != "self"
        }
        cls.__init__ = __init__  # type: ignore[method-assign]

    def __init__(self, **keys: Any) -> None:
        super().__init__()
        self.words = self.words_class(**_known(self.words_class, keys))
        keys["hidden_size"] = self.words.memory_size
        self.places = self.places_class(**_known(self.places_class, keys))
        self.memory_size = self.words.memory_size
        self.cell_name = self.words.cell_name
        self.reader = self.places.reader
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
        words = self.words(source, lengths)
        places = self.places(source, lengths, pictures)
        values = torch.cat([words.values, places.values.to(words.values.dtype)], 1)  # [B, W + P, M]
        values, mask = real_first(values, torch.cat([words.mask, places.mask], 1))
        final_state = words.final_state + self.join(places.final_state)  # [B, M]
        return Encoded(values=values, mask=mask, final_state=final_state, grids=places.grids)


def _parameters(encoder: type[Encoder]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(encoder.__init__).parameters)


def _known(encoder: type[Encoder], keys: dict[str, Any]) -> dict[str, Any]:
    """The keys that the constructor of an encoder has."""
    return {key: value for key, value in keys.items() if key in _parameters(encoder)}


class BidirectionalGrid(MultiModal):
    """A bidirectional recurrence over words, and a grid of features; see `RNNEncoder` and `Grid` for the keys."""

    words_class = Bidirectional
    places_class = Grid


class BidirectionalConvolution(MultiModal):
    """A bidirectional recurrence over words, and a convolutional network; see `RNNEncoder` and `Convolution`."""

    words_class = Bidirectional
    places_class = Convolution
