"""The conditional GRU of Nematus (Sennrich et al. 2017, section 2): update, look with the new state, update with what was
seen.

    s'_t = GRU_1(E y_{t-1}, s_{t-1})        c_t = attend(s'_t)        s_t = GRU_2(c_t, s'_t)
    readout_t = tanh(U s_t + V E y_{t-1} + C c_t)

With `transition_depth`, more steps without an input follow GRU_2 (Miceli Barone et al. 2017). With several layers the first
one attends; the others are plain recurrences on top.

The loop contains the products of s_{t-1} with GRU_1's W_hh and of s'_t with [W_query | GRU_2's W_hh], the scores, and α_t
times the memory already projected to GRU_2's gates.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.attention import average
from nmt.model.decoder import Decoder
from nmt.model.layers.numeric import tanh, to_float
from nmt.model.layers.packed import PackableLinear, linear


class Conditional(Decoder):
    """Two updates with attention between them."""

    def make_layers(self) -> None:
        self.before, self.after = (
            self.recurrent(self.embedding_size, depth=1),
            self.recurrent(self.memory_size),
        )
        self.upper = self.stack(self.embedding_size, first=1)
        self.combine = PackableLinear(
            self.hidden_size + self.embedding_size + self.memory_size, self.readout_size
        )
        nn.init.xavier_uniform_(self.combine.weight)
        nn.init.zeros_(self.combine.bias)

    def project(self, values: Float[Tensor, "B S HM"], heads: int) -> Float[Tensor, "B S HG"]:
        return self.multiplied(values, heads, self.after.weight_block("ih")[0])

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        before, after, attend = self.before, self.after, self.attention_step(memory, layout)
        gates = before.input_norm(linear(self, "gates", embedded, before.weight_block("ih")))
        mask = state.masks.get("inside 0")
        first, second = (
            before.loop(mask=mask),
            after.loop(*self.attention.query_blocks(), mask=mask),
        )
        bias: Tensor = after.rnn.bias_ih_l0  # type: ignore[assignment]
        cell, attention_state, hidden, weights = state.cells[0], state.attention, [], []
        for a in gates.unbind(1):
            cell = first.step(a, first.products(cell[0])[0], cell)
            u, *query = second.products(cell[0])
            w, seen, attention_state = attend(cell[0], query, attention_state)
            cell = second.step(after.input_norm(seen + bias), u, cell)
            hidden.append(cell[0])
            weights.append(w)
        all_weights = torch.cat(weights, 1)
        context = average(all_weights, memory, layout)
        top, upper = self.upper(torch.stack(hidden, 1), state.cells[1:], state.masks)
        readout = tanh(to_float(self.combine(torch.cat([top, embedded, context], -1))))
        return self.output(
            readout, replace(state, cells=(cell, *upper), attention=attention_state), all_weights
        )
