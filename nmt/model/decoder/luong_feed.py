"""Decoder of Luong et al. 2015 with input feeding (section 3.3): the attentional vector is part of
the next input.

    h_t = GRU([E y_{t-1}; h̃_{t-1}], h_{t-1})        c_t = attend(h_t)
    readout_t = h̃_t = tanh(W_c [c_t; h_t])

h_t is the decoder state of step t, c_t the context, and E y_{t-1} the embedding of the previous
token; W_c is a parameter. h_t and h̃_t recur. Multiplications of the embeddings and the memory are
computed outside of the loop over time. Inside the loop remain:

    h̃_{t-1}  by the right part of W_ih  input pre-activations of the gates
    h_t      by W_hh                    state pre-activations of the gates at t + 1
    h_t      by the right part of W_c   readout
    h_t      by W_query                 attention query

`project_top` fuses the last three multiplications into one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.decoder import Decoder
from nmt.model.decoder.attention_step import AttentionStep
from nmt.model.layers.loop_products import fused_linear
from nmt.model.layers.numeric import tanh, xavier
from nmt.model.layers.packed import linear
from nmt.model.layers.recurrence import Loop, Recurrent


@dataclass(frozen=True, kw_only=True)
class FeedState(State):
    """Decoder state with the attentional vector of the previous step, which is 0 initially."""

    feed: Float[Tensor, "N D"]


class LuongFeed(Decoder):
    """Decoder of Luong et al. 2015 with input feeding."""

    def make_layers(self) -> None:
        self.layers = self.stack(self.embedding_size + self.readout_size).layers
        self.combine = xavier(nn.Linear(self.memory_size + self.hidden_size, self.readout_size))

    def project(self, memory: Prepared) -> Float[Tensor, "B HS G"]:
        return self.multiply_values(memory, self.combine.weight[:, : self.memory_size])

    def initial(self, memory: Prepared) -> FeedState:
        start = super().initial(memory)
        h = start.cells[0][0]  # [B, Q]
        feed = h.new_zeros(h.size(0), self.readout_size)  # [B, D]
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
        embedding_block = layers[0].weight_block("ih", slice(self.embedding_size))
        feed_weight, _ = layers[0].weight_block("ih", slice(self.embedding_size, None))  # [G, D]
        embedded_gates = linear(self, "gates", embedded, embedding_block)  # [N, T, G]
        feed_gates = fused_linear(self, "feed", (feed_weight, None))
        layer_gates = [
            fused_linear(layer, "input", layer.weight_block("ih")) for layer in layers[1:]
        ]
        masks = [state.masks.get(f"inside {i}") for i in range(len(layers))]
        lower = [layer.loop(mask=masks[i]) for i, layer in enumerate(layers[:-1])]
        top, top_products = self.project_top(layers[-1], masks[-1])
        loops = [*lower, top]
        attend = AttentionStep(self.attention, memory, layout)
        cells = list(state.cells)
        feed = state.feed  # [N, D]
        attention_state = state.attention
        u_top = top.products(cells[-1][0])[0]  # [N, G], gates of the top layer's state
        readouts = []
        weights = []
        for a in embedded_gates.unbind(1):
            a = layers[0].input_norm(a + feed_gates(feed)[0])  # [N, G]
            x = cells[0][0]  # [N, Q]; layer 0 reads only `a`, then replaces x
            for i, loop in enumerate(loops):
                if i:
                    below = self.dropout(x.unsqueeze(1), state.masks.get(f"between {i}")).squeeze(1)
                    a = layers[i].input_norm(layer_gates[i - 1](below)[0])  # [N, G]
                u = u_top if loop is top else loop.products(cells[i][0])[0]  # [N, G]
                cells[i] = loop.step(a, u, cells[i])
                h = cells[i][0]  # [N, Q]
                x = x + h if self.residual and i else h
            u_top, combined, *query = top_products(h, x)
            attended = attend(x, query, attention_state)  # weights [N, 1, H·S]
            attention_state = attended.state
            feed = tanh(combined + attended.projected_context)  # [N, D]
            readouts.append(feed)  # [N, D]
            weights.append(attended.weights)  # [N, 1, H·S]
        state = replace(state, cells=tuple(cells), attention=attention_state, feed=feed)
        return self.output(torch.stack(readouts, 1), state, torch.cat(weights, 1))

    def project_top(
        self, top: Recurrent, mask: Tensor | None
    ) -> tuple[Loop, Callable[[Tensor, Tensor], tuple[Tensor, ...]]]:
        """Returns the loop functions of the top layer, and a function for the matrix
        multiplications that follow the top layer.

        The second function maps the state h and the output x of the top layer to the state
        pre-activations, the readout projection and the attention query. Without residual
        connections and recurrent dropout, x equals h, and one fused multiplication computes all
        three.

        top: top recurrent layer of the decoder
        mask: mask of recurrent dropout; None without dropout
        """
        combine = (self.combine.weight[:, self.memory_size :], self.combine.bias)  # [D, Q], [D]
        blocks = [combine, *self.attention.query_blocks()]
        if not self.residual and mask is None:
            loop = top.loop(*blocks)
            return loop, lambda h, x: loop.products(h)
        loop = top.loop(mask=mask)
        output_products = fused_linear(self, "asks", *blocks)
        return loop, lambda h, x: (*loop.products(h), *output_products(x))
