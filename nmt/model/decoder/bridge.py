"""The bridge from encoder to decoder: the state before the first word, made from what the encoder says of the sentence.

    tanh      s_0 = tanh(W [→h_S; ←h_1] + b)          Bahdanau et al. 2015, appendix A.2.2, with both directions
    linear    s_0 = W [→h_S; ←h_1] + b
    mean      s_0 = tanh(W (1/S) Σ_s h_s + b)         Sennrich et al. 2017 (Nematus)
    last      s_0 = [→h_S; ←h_1]                      Luong et al. 2015; encoder and decoder have the same size
    none      s_0 = 0

for every layer. An LSTM's c_0 is made likewise, but `last` leaves it 0: it is h that the encoder hands over.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.model.layers.numeric import tanh, to_float
from nmt.model.layers.packed import linear
from nmt.model.layers.recurrence import CellState

BridgeName = Literal["tanh", "linear", "mean", "last", "none"]


class Bridge(nn.Module):
    """Makes the states of `num_layers` layers, each of `parts` tensors [B hidden_size] (an LSTM has two).

    Raises ValueError for `last` if the sizes differ.
    """

    def __init__(
        self, kind: BridgeName, memory_size: int, hidden_size: int, num_layers: int, parts: int
    ) -> None:
        super().__init__()
        if kind == "last" and memory_size != hidden_size:
            raise ValueError(
                f"decoder.bridge=last hands over the encoder's state ({memory_size} features) as the decoder's "
                f"({hidden_size}): make them equal, e.g. sizes.decoder={memory_size}, or choose decoder.bridge=tanh"
            )
        self.kind, self.hidden_size, self.num_layers, self.parts = (
            kind,
            hidden_size,
            num_layers,
            parts,
        )
        if kind in ("tanh", "linear", "mean"):
            layer = nn.Linear(memory_size, num_layers * parts * hidden_size)
            self.weight, self.bias = layer.weight, layer.bias

    def reads(self, encoded: Encoded) -> Float[Tensor, "B M"]:
        """What of the memory the state is made from."""
        if self.kind != "mean":
            return encoded.final_state
        real = encoded.mask.unsqueeze(-1)
        return (encoded.values * real).sum(1) / real.sum(1)

    def states(self, start: Float[Tensor, "B M"]) -> tuple[CellState, ...]:
        """The state of each layer."""
        if self.kind in ("last", "none"):
            start = to_float(start)  # like the states that follow
            nothing = start.new_zeros(start.size(0), self.hidden_size)
            first = start if self.kind == "last" else nothing
            return tuple((first, nothing)[: self.parts] for _ in range(self.num_layers))
        made = to_float(linear(self, "states", start, (self.weight, self.bias)))
        states = (made if self.kind == "linear" else tanh(made)).split(self.hidden_size, -1)
        return tuple(tuple(states[i : i + self.parts]) for i in range(0, len(states), self.parts))
