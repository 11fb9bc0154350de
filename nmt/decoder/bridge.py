"""The bridge from encoder to decoder: the state before the first word, made from the encoder's summary.

    s_0 = tanh(W [→h_S; ←h_1] + b)        for every layer; an LSTM's c_0 likewise

Bahdanau et al. 2015, appendix A.2.2, with the summary of both directions.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from nmt.layers.packed import Linear
from nmt.layers.recurrence import Cell, full, tanh


class Bridge(Linear):
    """Makes the states of `num_layers` layers, each of `parts` tensors [B hidden_size] (an LSTM has two)."""

    def __init__(self, memory_size: int, hidden_size: int, num_layers: int, parts: int) -> None:
        super().__init__(memory_size, num_layers * parts * hidden_size)
        self.hidden_size, self.parts = hidden_size, parts

    def states(self, summary: Float[Tensor, "B M"]) -> tuple[Cell, ...]:
        """The state of each layer."""
        states = tanh(full(self(summary))).split(self.hidden_size, -1)
        return tuple(tuple(states[i : i + self.parts]) for i in range(0, len(states), self.parts))
