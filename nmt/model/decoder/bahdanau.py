"""The decoder of Bahdanau et al. 2015 (section 3.1, appendix A.2.2): attend first, then update.

    c_t = attend(s_{t-1})        s_t = GRU([E y_{t-1}; c_t], s_{t-1})
    readout_t = maxout(U s_t + V E y_{t-1} + C c_t)

The readout uses s_t, as the paper's eq. 4 does (its appendix writes s_{t-1}). Unlike the paper's GRU, this one resets
after the product (see nmt/model/layers/cells/gru.py). With several layers the first one attends; the others are plain
recurrences on top.

Only s recurs, so the loop contains only one product of s_{t-1} with [W_hh | W_query], the scores, and α_t times the
memory already projected to the gates (W_c h_s, once per sentence, instead of W_c c_t at every step).
"""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.attention import average
from nmt.model.decoder import Decoder
from nmt.model.decoder.attention_step import AttentionStep
from nmt.model.decoder.readout import Maxout
from nmt.model.layers.packed import linear


class Bahdanau(Decoder):
    """Attends with s_{t-1}, then updates on [embedding; context]; maxout readout."""

    def make_layers(self) -> None:
        inputs = self.embedding_size + self.memory_size
        self.bottom = self.recurrent(inputs)
        self.upper = self.stack(inputs, first=1)
        self.readout = Maxout(self.hidden_size + inputs, self.readout_size)

    def project(self, memory: Prepared) -> Float[Tensor, "B S HG"]:
        weight, _ = self.bottom.weight_block("ih", slice(self.embedding_size, None))  # [G, M]
        return self.multiply_values(memory, weight)

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        bottom = self.bottom
        attend = AttentionStep(self.attention, memory, layout)
        embedding_block = bottom.weight_block("ih", slice(self.embedding_size))
        gates = linear(self, "gates", embedded, embedding_block)  # [N, T, G]
        loop = bottom.loop(*self.attention.query_blocks(), mask=state.masks.get("inside 0"))
        cell = state.cells[0]
        attention_state = state.attention
        hidden = []
        weights = []
        for a in gates.unbind(1):
            s = cell[0]  # [N, Q]
            u, *query = loop.products(s)
            attended = attend(s, query, attention_state)
            cell = loop.step(bottom.input_norm(a + attended.projected_context), u, cell)
            attention_state = attended.state
            hidden.append(cell[0])
            weights.append(attended.weights)
        all_weights = torch.cat(weights, 1)  # [N, T, H·S]
        context = average(all_weights, memory, layout)  # [N, T, M]
        top, upper = self.upper(torch.stack(hidden, 1), state.cells[1:], state.masks)  # [N, T, Q]
        readout = self.readout(torch.cat([top, embedded, context], -1))  # [N, T, D]
        state = replace(state, cells=(cell, *upper), attention=attention_state)
        return self.output(readout, state, all_weights)
