"""Base class of decoders whose lowest layer attends within its recurrence. The class contains the
loop over time."""

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Layout, Prepared, State
from nmt.model.attention.layer import AttentionState, sums
from nmt.model.decoder import Decoder
from nmt.model.decoder.attention_step import Attended, AttentionStep
from nmt.model.decoder.stack import Stack
from nmt.model.layers.loop_products import fused_linear
from nmt.model.layers.recurrence import CellState, Recurrent

Update = Callable[[Tensor, CellState, AttentionState], tuple[CellState, Attended]]
"""Type of functions that compute one decoder step: (input pre-activations from the embedding
[N, G], layer state, attention state) → (new layer state, attention result)."""


class AttendingDecoder(Decoder):
    """Base class of decoders whose lowest layer attends within its recurrence.

    upper: recurrent layers above the lowest layer, without attention
    readout: layer that maps [state of the top layer; embedding; context] to the readout; absent in
        subclasses that override `predict`
    """

    upper: Stack
    readout: nn.Module

    def embedded_gates(self, embedded: Float[Tensor, "N T E"]) -> Float[Tensor, "N T G"]:
        """Returns the part of the lowest layer's input pre-activations that depends only on the
        embeddings.

        embedded: embeddings of the input tokens
        """
        raise NotImplementedError

    def update(self, attend: AttentionStep, mask: Tensor | None) -> Update:
        """Returns the function that the loop over time calls at every decoder step.

        attend: attention, called once per decoder step
        mask: recurrent dropout mask of the lowest layer; None without dropout
        """
        raise NotImplementedError

    def attend_then_update(
        self, layer: Recurrent, attend: AttentionStep, mask: Tensor | None
    ) -> Update:
        """Returns a function that computes one decoder step. The function attends with the state of
        a layer as the query, then updates this state with the context.

        layer: recurrent layer
        attend: attention, called once per decoder step
        mask: recurrent dropout mask of the layer; None without dropout
        """
        # With recurrent dropout, the query has its own multiplication, because dropout applies to
        # the state in the gates but not in the query.
        blocks = self.attention.query_blocks()
        project_query = None
        if mask is not None and blocks:
            project_query = fused_linear(self, "asks", *blocks)
        loop = layer.loop(*(blocks if project_query is None else ()), mask=mask)

        def update(
            a: Tensor, cell: CellState, attention_state: AttentionState
        ) -> tuple[CellState, Attended]:
            u, *query = loop.products(cell[0])  # [N, G], followed by the projections of the query
            if project_query is not None:
                query = [*project_query(cell[0])]
            attended = attend(cell[0], query, attention_state)
            gates = layer.input_norm(a + attended.projected_context)  # [N, G]
            return loop.step(gates, u, cell), attended

        return update

    def predict(self, features: Float[Tensor, "N T F"]) -> Float[Tensor, "N T D"]:
        """Computes the readouts of all decoder steps.

        features: concatenation [state of the top layer; embedding; context]
        """
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
        cell = state.cells[0]  # its parts are [N, Q]
        attention_state = state.attention
        hidden = []
        weights = []
        for a in gates.unbind(1):
            cell, attended = update(a, cell, attention_state)
            attention_state = attended.state
            hidden.append(cell[0])  # [N, Q]
            weights.append(attended.weights)  # [N, 1, H·S]
        all_weights = torch.cat(weights, 1)  # [N, T, H·S]
        context = sums(all_weights, memory.values, memory, layout)  # [N, T, M]
        top, upper = self.upper(torch.stack(hidden, 1), state.cells[1:], state.masks)  # [N, T, Q]
        readout = self.predict(torch.cat([top, embedded, context], -1))  # [N, T, D]
        state = replace(state, cells=(cell, *upper), attention=attention_state)
        return self.output(readout, state, all_weights)
