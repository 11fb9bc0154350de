"""The decoder of Luong et al. 2015 with input feeding (section 3.3): the attentional vector is part of the next input.

    h_t = GRU([E y_{t-1}; h̃_{t-1}], h_{t-1})        c_t = attend(h_t)        readout_t = h̃_t = tanh(W_c [c_t; h_t])

h and h̃ recur, so they are in the loop: one product of the top h_t with [W_hh | W_c's right half | W_query], one of h̃ with
its part of W_ih, and α_t times the memory already projected by W_c's left half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.decoder import Decoder
from nmt.model.layers.loop_products import fused_linear
from nmt.model.layers.numeric import tanh
from nmt.model.layers.packed import linear
from nmt.model.layers.recurrence import Recurrent


@dataclass(frozen=True, kw_only=True)
class FeedState(State):
    """`feed`: the attentional vector of the previous step (zeros at the start)."""

    feed: Float[Tensor, "N D"]


class LuongFeed(Decoder):
    """Luong's decoder whose attentional vector is fed to the next step."""

    def make_layers(self) -> None:
        sizes = [self.embedding_size + self.readout_size] + [self.hidden_size] * (
            self.num_layers - 1
        )
        self.layers = nn.ModuleList(self.recurrent(size) for size in sizes)
        self.combine = nn.Linear(self.memory_size + self.hidden_size, self.readout_size)
        nn.init.xavier_uniform_(self.combine.weight)
        nn.init.zeros_(self.combine.bias)

    def project(self, values: Float[Tensor, "B S HM"], heads: int) -> Float[Tensor, "B S HG"]:
        return self.multiplied(values, heads, self.combine.weight[:, : self.memory_size])

    def initial(self, memory: Prepared) -> FeedState:
        start = super().initial(memory)
        feed = start.cells[0][0].new_zeros(start.cells[0][0].size(0), self.readout_size)
        return FeedState(cells=start.cells, attention=start.attention, masks=start.masks, feed=feed)

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        assert isinstance(state, FeedState)
        layers: list[Recurrent] = list(self.layers)  # type: ignore[arg-type]
        first, attend = layers[0], self.attention_step(memory, layout)
        gates = linear(
            self, "gates", embedded, first.weight_block("ih", slice(self.embedding_size))
        )
        fed = fused_linear(
            self, "feed", (first.weight_block("ih", slice(self.embedding_size, None))[0], None)
        )
        inputs = [fused_linear(layer, "input", layer.weight_block("ih")) for layer in layers[1:]]
        right = (self.combine.weight[:, self.memory_size :], self.combine.bias)
        asks = (right, *self.attention.query_blocks())
        masks = [state.masks.get(f"inside {i}") for i in range(len(layers))]
        joined = (
            not self.residual and masks[-1] is None
        )  # then h of the top layer multiplies all of these
        loops = [layer.loop(mask=mask) for layer, mask in zip(layers[:-1], masks, strict=False)]
        loops.append(layers[-1].loop(*(asks if joined else ()), mask=masks[-1]))
        apart = None if joined else fused_linear(self, "asks", *asks)
        cells, feed, attention_state, readouts, weights = (
            list(state.cells),
            state.feed,
            state.attention,
            [],
            [],
        )
        u_top, x = loops[-1].products(cells[-1][0])[0], cells[-1][0]
        for a in gates.unbind(1):
            a = first.input_norm(a + fed(feed)[0])
            for i, loop in enumerate(loops):
                if i:
                    below = self.dropout(x.unsqueeze(1), state.masks.get(f"between {i}")).squeeze(1)
                    a = layers[i].input_norm(inputs[i - 1](below)[0])
                u = loop.products(cells[i][0])[0] if i < len(loops) - 1 else u_top
                cells[i] = loop.step(a, u, cells[i])
                x = x + cells[i][0] if self.residual and i else cells[i][0]
            u_top, *asked = loops[-1].products(cells[-1][0])
            own, *query = asked if apart is None else apart(x)
            w, seen, attention_state = attend(x, query, attention_state)
            feed = tanh(own + seen)
            readouts.append(feed)
            weights.append(w)
        after = replace(state, cells=tuple(cells), attention=attention_state, feed=feed)
        return self.output(torch.stack(readouts, 1), after, torch.cat(weights, 1))
