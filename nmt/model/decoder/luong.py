"""Decoder of Luong et al. 2015 (section 3) without input feeding: updates its state, then attends.

    h_t = GRU(E y_{t-1}, h_{t-1})        c_t = attend(h_t)
    readout_t = h̃_t = tanh(W_c [c_t; h_t])

h_t is the decoder state of step t, c_t the context, and E y_{t-1} the embedding of the previous
token; W_c is a parameter. The recurrence does not depend on attention, so training computes the
recurrence first, then the attention of all T steps at once.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.decoder import Decoder
from nmt.model.layers.numeric import tanh, to_float, xavier
from nmt.model.layers.packed import PackableLinear


class Luong(Decoder):
    """Decoder that updates its state, then attends. The readout is the attentional vector
    h̃ = tanh(W_c [context; state])."""

    def make_layers(self) -> None:
        self.layers = self.stack(self.embedding_size)
        self.combine = xavier(
            PackableLinear(self.memory_size + self.hidden_size, self.readout_size)
        )

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        hidden, cells = self.layers(embedded, state.cells, state.masks)  # [N, T, Q]
        query = self.attention.project(hidden)  # [N, T, P]
        weights, context, attention_state = self.attention.attend_and_sum(
            query, memory, state.attention, layout
        )  # [N, T, H·S], [N, T, M]
        attentional = tanh(to_float(self.combine(torch.cat([context, hidden], -1))))  # [N, T, D]
        state = replace(state, cells=cells, attention=attention_state)
        return self.output(attentional, state, weights)
