"""The long short-term memory (Hochreiter & Schmidhuber 1997; forget gate of Gers et al. 2000), with
a second state c.

With the gates a of the input and u of the state, in the order i, f, g, o of torch.nn.LSTM:

    i, f, o = σ(a + u)    g = tanh(a_g + u_g)    c' = f ∘ c + i ∘ g    h' = o ∘ tanh(c')

Dropout of the update (Semeniuta et al. 2016, eq. 8-11) scales g by a mask.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmt.model.layers.numeric import tanh
from nmt.model.layers.recurrence import CellState, Recurrent


class LSTM(Recurrent):
    """A layer of long short-term memories; the state is (h, c)."""

    gates = 4
    state_parts = 2
    torch_layer = nn.LSTM
    torch_function = staticmethod(torch.lstm)

    def initialize(self) -> None:
        super().initialize()
        for name, parameter in self.rnn.named_parameters():
            if name.startswith("bias_ih"):
                # The forget gate: remember by default (Jozefowicz et al. 2015).
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
    """One step.

    a: gates of the input [… 4Q]
    u: gates of the state [… 4Q]
    state: (h [… Q], c [… Q])
    update_mask: factors of g [… Q]
    norm: normalisation of c' before its tanh
    """
    h, c = state
    size = h.size(-1)
    gates = a + u.to(h.dtype)  # [… 4Q]
    i, f = torch.sigmoid(gates[..., : 2 * size]).chunk(2, -1)  # [… Q], [… Q]
    g = tanh(gates[..., 2 * size : 3 * size])
    o = torch.sigmoid(gates[..., 3 * size :])
    if update_mask is not None:
        g = g * update_mask
    c = torch.addcmul(i * g, f, c)  # c_t = i g + f c
    return o * tanh(c if norm is None else norm(c)), c
