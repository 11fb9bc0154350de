"""The conditional GRU of Nematus (Sennrich et al. 2017, section 2): update, attend with the new state, update with the
context.

    s'_t = GRU_1(E y_{t-1}, s_{t-1})        c_t = attend(s'_t)        s_t = GRU_2(c_t, s'_t)
    readout_t = tanh(U s_t + V E y_{t-1} + C c_t)

With `transition_depth`, more steps without an input follow GRU_2 (Miceli Barone et al. 2017). With several layers the first
one attends; the others are plain recurrences on top.

The loop contains the products of s_{t-1} with GRU_1's W_hh and of s'_t with [W_query | GRU_2's W_hh], the scores, and α_t
times the memory already projected to GRU_2's gates.
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.attention import average
from nmt.model.decoder import Decoder
from nmt.model.decoder.attention_step import AttentionStep
from nmt.model.layers.numeric import tanh, to_float
from nmt.model.layers.packed import PackableLinear, linear


class Conditional(Decoder):
    """Two updates with attention between them."""

    def make_layers(self) -> None:
        self.before = self.recurrent(self.embedding_size, depth=1)
        self.after = self.recurrent(self.memory_size)
        self.upper = self.stack(self.embedding_size, first=1)
        features = self.hidden_size + self.embedding_size + self.memory_size
        self.combine = PackableLinear(features, self.readout_size)
        nn.init.xavier_uniform_(self.combine.weight)
        nn.init.zeros_(self.combine.bias)

    def project(self, memory: Prepared) -> Float[Tensor, "B S HG"]:
        weight, _ = self.after.weight_block("ih")  # [G, M]
        return self.multiply_values(memory, weight)

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        before = self.before
        after = self.after
        attend = AttentionStep(self.attention, memory, layout)
        gates = linear(self, "gates", embedded, before.weight_block("ih"))
        gates = before.input_norm(gates)  # [N, T, G]
        mask = state.masks.get("inside 0")
        first = before.loop(mask=mask)
        second = after.loop(*self.attention.query_blocks(), mask=mask)
        _, bias = after.weight_block("ih")  # [G]
        assert bias is not None
        cell = state.cells[0]
        attention_state = state.attention
        hidden = []
        weights = []
        for a in gates.unbind(1):
            u = first.products(cell[0])[0]
            cell = first.step(a, u, cell)  # s'_t
            u, *query = second.products(cell[0])
            attended = attend(cell[0], query, attention_state)
            a = after.input_norm(attended.projected_context + bias)
            cell = second.step(a, u, cell)  # s_t
            attention_state = attended.state
            hidden.append(cell[0])
            weights.append(attended.weights)
        all_weights = torch.cat(weights, 1)  # [N, T, H·S]
        context = average(all_weights, memory, layout)  # [N, T, M]
        top, upper = self.upper(torch.stack(hidden, 1), state.cells[1:], state.masks)  # [N, T, Q]
        readout = tanh(to_float(self.combine(torch.cat([top, embedded, context], -1))))
        state = replace(state, cells=(cell, *upper), attention=attention_state)
        return self.output(readout, state, all_weights)
