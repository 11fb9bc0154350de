"""The decoder of Bahdanau et al. 2015 (section 3.1, appendix A.2.2): look first, then update.

    c_t = attend(s_{t-1})        s_t = GRU([E y_{t-1}; c_t], s_{t-1})
    readout_t = maxout(U s_t + V E y_{t-1} + C c_t)

The readout uses s_t, as the paper's eq. 4 does (its appendix writes s_{t-1}). Unlike the paper's GRU, this one resets
after the product (see nmt/layers/recurrence.py). With several layers the first one attends; the others are plain
recurrences on top.

Only s recurs, so the loop contains only this: one product of s_{t-1} with [W_query | W_hh], the scores, and α_t times
the memory already projected to the gates (W_c h_s, once per sentence, instead of W_c c_t at every step).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.attention import average
from nmt.decoder import Decoder
from nmt.decoder.readout import Maxout
from nmt.decoder.stack import Stack
from nmt.foundation.interfaces import DecoderOutput, Memory, State
from nmt.layers.cells import full
from nmt.layers.packed import linear
from nmt.layers.recurrence import Shared


class Bahdanau(Decoder):
    """Attends with s_{t-1}, then updates on [embedding; context]; maxout readout."""

    def make_layers(self) -> None:
        inputs = self.embedding_size + self.memory_size
        self.bottom = self.recurrent(inputs)
        upper = [self.recurrent(self.hidden_size) for _ in range(self.num_layers - 1)]
        self.upper = Stack(upper, self.dropout, self.residual, first=1)
        self.readout = Maxout(self.hidden_size + inputs, self.readout_size)

    def project(self, memory: Memory) -> Memory:
        weight, _ = self.bottom.block("ih", slice(self.embedding_size, None))
        memory = self.attention.prepare(memory)
        inputs = linear(self, "inputs", memory.values.unflatten(-1, (memory.heads, -1)), (weight, None))
        return replace(memory, inputs=full(inputs.flatten(-2)))

    def forward(self, embedded: Float[Tensor, "N T E"], state: State, memory: Memory) -> DecoderOutput:
        attention, bottom = self.attention, self.bottom
        gates = linear(self, "gates", embedded, bottom.block("ih", slice(self.embedding_size)))
        loop = bottom.loop(*attention.query_blocks(), mask=state.masks.get("inside 0"))
        assert memory.inputs is not None, "Decoder.prepare makes them"
        looked_at = Shared(memory.by_head(memory.inputs), low_precision=False)
        cell, carry, hidden, weights = state.cells[0], state.attention, [], []
        for a in gates.unbind(1):
            u, *query = loop.product(cell[0])
            w, carry = attention.attend(attention.query(cell[0], *query).unsqueeze(1), memory, carry)
            seen = memory.gather(looked_at(memory.spread(w)), 1).squeeze(1)
            cell = loop.step(bottom.input_norm(a + seen), u, cell)
            hidden.append(cell[0])
            weights.append(w)
        all_weights = torch.cat(weights, 1)
        context = average(all_weights, memory)
        top = torch.stack(hidden, 1)
        top, upper = self.upper(top, state.cells[1:], state.masks)
        readout = self.readout(torch.cat([top, embedded, context], -1))
        return self.output(readout, replace(state, cells=(cell, *upper), attention=carry), all_weights)
