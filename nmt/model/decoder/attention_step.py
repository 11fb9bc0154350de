"""Attention at one step of a decoder's loop over time.

A plain loop would multiply each context c_t by a decoder matrix W. Since W c_t = Σ_s α_ts (W h_s)
for weights α_ts and memory values h_s, `Decoder.project` computes W h_s once per sentence, outside
of the loop. Each decoder step only sums the vectors W h_s.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Layout, Prepared, gather_rows, scatter_rows
from nmt.model.attention.layer import Attention, AttentionState, sums
from nmt.model.layers.loop_products import LoopProduct


class Attended(NamedTuple):
    """Result of one attention step.

    weights: attention weights [N, 1, H·S] of H heads and S positions
    projected_context: product [N, G] of the context c_t and a decoder matrix W with G output
        features
    state: attention state after the step
    """

    weights: Tensor
    projected_context: Tensor
    state: AttentionState


class AttentionStep:
    """Attention at one decoder step, with the decoder state of each batch row as the query.

    attention: attention module
    memory: prepared encoder memory, with projected values
    layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
    """

    def __init__(self, attention: Attention, memory: Prepared, layout: Layout | None) -> None:
        self.attention = attention
        self.memory = memory
        self.layout = layout
        self._native = attention.native_memory(memory, memory.projected_values, layout)
        # Without gradients, each step calls `sums`, and autocast would convert the values in vain.
        if self._native is None and torch.is_grad_enabled():
            self.sum_values = LoopProduct(memory.projected_values)  # [B, H·S, G]

    def __call__(
        self, h: Float[Tensor, "N Q"], products: Sequence[Tensor], state: AttentionState
    ) -> Attended:
        """Returns the attention weights and the projected context of each batch row.

        h: decoder states
        products: h multiplied by each weight block in `Attention.query_blocks`
        state: attention state before the step
        """
        query = self.attention.query(h, *products).unsqueeze(1)  # [N, 1, P]
        if self._native is not None:
            weights, summed = self._native.attend(query)  # [N, 1, S], [N, 1, G]
            return Attended(weights, summed.squeeze(1), state)
        # [N, 1, H·S]
        weights, state = self.attention.attend(query, self.memory, state, self.layout)
        if not torch.is_grad_enabled():
            # [N, 1, G]
            summed = sums(weights, self.memory.projected_values, self.memory, self.layout)
            return Attended(weights, summed.squeeze(1), state)
        by_sentence = scatter_rows(weights, self.memory.mask.size(0), self.layout)  # [B, n, H·S]
        summed = self.sum_values(by_sentence)  # [B, n, G]
        return Attended(weights, gather_rows(summed, 1, self.layout).squeeze(1), state)
