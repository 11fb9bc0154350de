"""One step of attention in a decoder's loop over time, and the decoders with such a loop below their layers.

A loop would multiply each context by a matrix W of the decoder. Since W c_t = Σ_s α_ts (W h_s), the values are
multiplied once per sentence, outside of the loop (`Decoder.project`), and the step sums the results.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import (
    DecoderOutput,
    Layout,
    Prepared,
    State,
    gather_rows,
    scatter_rows,
)
from nmt.model.attention import Attention, AttentionState, average
from nmt.model.decoder import Decoder
from nmt.model.decoder.stack import Stack
from nmt.model.layers.loop_products import LoopProduct
from nmt.model.layers.recurrence import CellState, Recurrent


class Attended(NamedTuple):
    """Result of one step.

    weights: attention weights [N 1 HS]
    projected_context: W c_t [N G]
    state: state of the attention after the step
    """

    weights: Tensor
    projected_context: Tensor
    state: AttentionState


class AttentionStep:
    """Attends with one decoder state per row.

    attention: weights of queries
    memory: memory of the sentences, with projected values
    layout: rows of a search (None: equally many rows per sentence)
    """

    def __init__(self, attention: Attention, memory: Prepared, layout: Layout | None) -> None:
        self.attention = attention
        self.memory = memory
        self.layout = layout
        self.sum_values = LoopProduct(memory.by_head(memory.projected_values))  # [B, H·S, G]

    def __call__(
        self, h: Float[Tensor, "N Q"], products: Sequence[Tensor], state: AttentionState
    ) -> Attended:
        """Weights and projected context of each row.

        h: decoder states
        products: products of h with `Attention.query_blocks`
        state: state of the attention before the step
        """
        query = self.attention.query(h, *products).unsqueeze(1)  # [N, 1, P]
        weights, state = self.attention.attend(query, self.memory, state, self.layout)
        by_sentence = scatter_rows(weights, self.memory.mask.size(0), self.layout)  # [B, n, H·S]
        sums = self.sum_values(by_sentence)  # [B, n, G]
        return Attended(weights, gather_rows(sums, 1, self.layout).squeeze(1), state)


Update = Callable[[Tensor, CellState, AttentionState], tuple[CellState, Attended]]
"""Function of the gates of the embedding [N G], the state of the layer and that of the attention. It returns the new
state of the layer, and the attention."""


class AttendingDecoder(Decoder):
    """Base of the decoders whose lowest layer attends within its update.

    upper: plain recurrences on top of it
    readout: layer from [state of the top layer; embedding; context] to the readout
    """

    upper: Stack
    readout: nn.Module

    def embedded_gates(self, embedded: Float[Tensor, "N T E"]) -> Float[Tensor, "N T G"]:
        """Part of the lowest layer's gates that depends on the embeddings alone."""
        raise NotImplementedError

    def update(self, attend: AttentionStep, mask: Tensor | None) -> Update:
        """The function that the loop calls at every step.

        attend: attention of the step
        mask: mask of recurrent dropout of the lowest layer
        """
        raise NotImplementedError

    def attend_then_update(
        self, layer: Recurrent, attend: AttentionStep, mask: Tensor | None
    ) -> Update:
        """A function that attends with the state of a layer, then updates it on the gates and the context."""
        loop = layer.loop(*self.attention.query_blocks(), mask=mask)

        def update(
            a: Tensor, cell: CellState, attention_state: AttentionState
        ) -> tuple[CellState, Attended]:
            u, *query = loop.products(cell[0])
            attended = attend(cell[0], query, attention_state)
            gates = layer.input_norm(a + attended.projected_context)  # [N, G]
            return loop.step(gates, u, cell), attended

        return update

    def predict(self, features: Float[Tensor, "N T F"]) -> Float[Tensor, "N T D"]:
        """Readout of the concatenation [state of the top layer; embedding; context]."""
        return self.readout(features)

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        gates = self.embedded_gates(embedded)  # [N, T, G]
        attend = AttentionStep(self.attention, memory, layout)
        update = self.update(attend, state.masks.get("inside 0"))
        cell = state.cells[0]
        attention_state = state.attention
        hidden = []
        weights = []
        for a in gates.unbind(1):
            cell, attended = update(a, cell, attention_state)
            attention_state = attended.state
            hidden.append(cell[0])
            weights.append(attended.weights)
        all_weights = torch.cat(weights, 1)  # [N, T, H·S]
        context = average(all_weights, memory, layout)  # [N, T, M]
        top, upper = self.upper(torch.stack(hidden, 1), state.cells[1:], state.masks)  # [N, T, Q]
        readout = self.predict(torch.cat([top, embedded, context], -1))  # [N, T, D]
        state = replace(state, cells=(cell, *upper), attention=attention_state)
        return self.output(readout, state, all_weights)
