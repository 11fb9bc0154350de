"""Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate of Gers et al. 2000), with a
second state c.

    i, f, o = σ(a + u)    g = tanh(a_g + u_g)    c' = f ∘ c + i ∘ g    h' = o ∘ tanh(c')

a = W_ih x + b_ih are the input pre-activations of the gates, and u = W_hh h + b_hh the state
pre-activations, in the order i, f, g, o of torch.nn.LSTM. h' and c' are the state after the step.
Dropout of the update (Semeniuta et al. 2016, eq. 8-11) multiplies g by a mask.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from nmt.model.layers.numeric import tanh
from nmt.model.layers.recurrence import CellState, Recurrent


class LSTM(Recurrent):
    """Recurrent layer of long short-term memory units (LSTM); the state is (h, c)."""

    gates = 4
    state_parts = 2
    torch_layer = nn.LSTM
    torch_function = staticmethod(torch.lstm)

    def __init__(
        self, input_size: int, hidden_size: int, directions: int = 1, **options: Any
    ) -> None:
        super().__init__(input_size, hidden_size, directions, **options)
        for transition in self.transitions:  # each has a forget gate of its own
            gates = transition.input_bias.data.split(self.size, -1)
            nn.init.ones_(gates[1])

    def initialize(self) -> None:
        super().initialize()
        for name, parameter in self.rnn.named_parameters():
            if name.startswith("bias_ih"):
                # Bias 1 opens the forget gate at first (Jozefowicz et al. 2015).
                nn.init.ones_(parameter.data.split(self.size)[1])

    def cell(
        self, a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None
    ) -> CellState:
        return lstm(a, u, state, update_mask)


def lstm(
    a: Tensor,
    u: Tensor,
    state: CellState,
    update_mask: Tensor | None = None,
    norm: Callable[[Tensor], Tensor] | None = None,
) -> CellState:
    """Returns the state of a long short-term memory (LSTM) after one time step.

    a: input pre-activations of the gates, W_ih x + b_ih [… 4Q]
    u: state pre-activations of the gates, W_hh h + b_hh [… 4Q]
    state: state before the step, (h [… Q], c [… Q])
    update_mask: dropout mask of the cell input g [… Q]; None without dropout
    norm: normalisation of the new state c before its tanh; None without normalisation
    """
    h, c = state
    size = h.size(-1)
    gates = a + u.to(h.dtype)  # [… 4Q]
    i, f = torch.sigmoid(gates[..., : 2 * size]).chunk(2, -1)  # [… Q], [… Q]
    g = tanh(gates[..., 2 * size : 3 * size])  # [… Q]
    o = torch.sigmoid(gates[..., 3 * size :])  # [… Q]
    if update_mask is not None:
        g = g * update_mask
    c = torch.addcmul(i * g, f, c)  # c_t = i g + f c
    return o * tanh(c if norm is None else norm(c)), c
