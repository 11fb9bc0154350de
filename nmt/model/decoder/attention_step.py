"""One step of attention in a decoder's loop over time.

A loop would multiply each context by a matrix W of the decoder. Since W c_t = Σ_s α_ts (W h_s), the
values are multiplied once per sentence, outside of the loop (`Decoder.project`), and the step sums
the results.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Layout, Prepared, gather_rows, scatter_rows
from nmt.model.attention import Attention, AttentionState, sums
from nmt.model.layers.loop_products import LoopProduct


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
        self._native = attention.native_memory(memory, memory.projected_values, layout)
        if self._native is None:
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
        if self._native is not None:
            weights, summed = self._native.attend(query)  # [N, 1, S], [N, 1, G]
            return Attended(weights, summed.squeeze(1), state)
        weights, state = self.attention.attend(query, self.memory, state, self.layout)
        if not torch.is_grad_enabled():
            summed = sums(weights, self.memory.projected_values, self.memory, self.layout)
            return Attended(weights, summed.squeeze(1), state)
        by_sentence = scatter_rows(weights, self.memory.mask.size(0), self.layout)  # [B, n, H·S]
        summed = self.sum_values(by_sentence)  # [B, n, G]
        return Attended(weights, gather_rows(summed, 1, self.layout).squeeze(1), state)
