"""Attention: score + window + normaliser + weighted sum (Bahdanau et al. 2015, eq. 5-6; Luong et al. 2015, eq. 7).

    α_ts = normalise_s(score(q_t, h_s)), within the window        c_t = β_t Σ_s α_ts h_s

β is 1, or the gate of Xu et al. 2015 (section 4.2.1), σ(f(q_t)): how much of what is seen counts for the next word.

The three parts are independent of each other: a score is a file beside this one, a window a file in window/, a normaliser
a file in normalizer/; each has a YAML in conf/.

Read: this file, dot, general, concat, contract, the rest in any order.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded, Layout, Prepared, gather_rows, scatter_rows
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.normalizer.softmax import Softmax
from nmt.model.attention.window import Window
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import WeightBlock

AttentionState = tuple[tuple[Tensor, ...], ...]
"""What score and window remember from step to step: tensors whose first dimension is the row."""


class Score(nn.Module):
    """How well each query fits each position of the memory.

    A score is built with `query_size` and `memory_size`. Two parts are computed before `forward`: `keys`, once per
    sentence, and `query_layer`, a linear map of the query (None: the query is used as it is). Decoders that recur
    through attention multiply by `query_layer` and by their own recurrent weights in one product.

    A score with several `heads` gives one row of scores per head, side by side, and may have separate `values` for each
    head. A score that `recurs` depends on the attention weights of earlier steps, so it is called step by step.
    """

    heads = 1
    recurs = False
    query_layer: nn.Linear | None

    def __init__(self) -> None:
        super().__init__()
        self.query_layer = None

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        """The memory as it is compared with queries."""
        raise NotImplementedError

    def values(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S HM"]:
        """The memory as it is summed, heads side by side."""
        return values

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T HS"]:
        """Unnormalised scores; `query` is the output of `query_layer`. If the score recurs, `attended` is the total
        weight that each position received in earlier steps; other scores may ignore it."""
        raise NotImplementedError


class Attention(nn.Module):
    """Attention weights of each query over the real positions of its sentence's memory. Stateless between calls.

    All rows of one sentence (the hypotheses of a beam) are queries of the same memory, which is never copied. Raises
    ValueError if several heads are combined with a window, or a normaliser with a window that does not normalise.
    """

    def __init__(
        self, score: Score, window: Window | None = None, normalizer: Normalizer | None = None
    ) -> None:
        super().__init__()
        self.score = score
        self.window = Window(query_size=1) if window is None else window
        self.normalizer: Normalizer = Softmax() if normalizer is None else normalizer
        self.gate: nn.Linear | None = None
        if score.heads > 1 and type(self.window) is not Window:
            raise ValueError(
                "attention: several heads cannot be combined with a window: leave window=global"
            )
        if not self.window.normalizes and not isinstance(self.normalizer, Softmax):
            name = type(self.window).__name__.lower()
            raise ValueError(
                f"window={name} does not normalise over positions: leave normalizer=softmax"
            )

    def add_gate(self, query_size: int) -> None:
        """From now on, a gate decides how much of the context counts."""
        self.gate = nn.Linear(query_size, 1)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    @property
    def _layers(self) -> list[nn.Linear]:
        """The linear maps of the query."""
        return [
            layer
            for layer in (self.score.query_layer, self.window.query_layer, self.gate)
            if layer is not None
        ]

    @property
    def recurs(self) -> bool:
        return self.score.recurs or self.window.recurs

    def prepare(self, encoded: Encoded) -> Prepared:
        """Keys and values of an encoder's output, once per sentence."""
        values = self.score.values(encoded.values)
        return Prepared(
            encoded=encoded,
            keys=to_float(self.score.keys(encoded.values)),
            values=values,
            projected_values=values,
            decoder_init=encoded.final_state,
        )

    def initial_attention_state(self, memory: Prepared, rows: int) -> AttentionState:
        """State of the attention before the first step."""
        attended = (
            (memory.values.new_zeros(rows, memory.mask.size(1)),) if self.score.recurs else ()
        )
        return attended, self.window.initial_state(memory.encoded, rows)

    def query_blocks(self) -> list[WeightBlock]:
        """The weight matrices that `query` needs, as blocks for `fused_linear`; an empty list if the query is used as it is."""
        return [(layer.weight, layer.bias) for layer in self._layers]

    def query(self, query: Float[Tensor, "*rows Q"], *products: Tensor) -> Float[Tensor, "*rows P"]:
        """The query's projections for score, window and gate, side by side. `products`: its products with `query_blocks`."""
        parts = [] if self.score.query_layer is not None else [query]
        parts += products
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def project(self, query: Float[Tensor, "N T Q"]) -> Float[Tensor, "N T P"]:
        """The query's projections for score, window and gate, side by side."""
        return self.query(query, *(layer(query) for layer in self._layers))

    def attend(
        self,
        query: Float[Tensor, "N T P"],
        memory: Prepared,
        state: AttentionState,
        layout: Layout | None = None,
    ) -> tuple[Float[Tensor, "N T HS"], AttentionState]:
        """Weights of projected queries, heads side by side: each whole row sums to 1 (to β with a gate), padding gets
        exactly 0."""
        if not self.recurs or query.size(1) == 1:
            return self._attend(query, memory, state, layout)
        steps = []
        for one in query.split(1, 1):
            weights, state = self._attend(one, memory, state, layout)
            steps.append(weights)
        return torch.cat(steps, 1), state

    def _attend(
        self, query: Tensor, memory: Prepared, state: AttentionState, layout: Layout | None
    ) -> tuple[Tensor, AttentionState]:
        sentences = memory.mask.size(0)
        query, steps, heads, open_ = to_float(query), query.size(1), self.score.heads, None
        if self.gate is not None:
            query, open_ = query.split([query.size(-1) - 1, 1], -1)
        seen_by_window = None
        if self.window.query_layer is not None:
            query, seen_by_window = query.split(
                [
                    query.size(-1) - self.window.query_layer.out_features,
                    self.window.query_layer.out_features,
                ],
                -1,
            )
        attended, remembered = state
        scores = self.score(
            scatter_rows(query, sentences, layout),
            memory.keys,
            *(scatter_rows(a.unsqueeze(1), sentences, layout) for a in attended),
        )
        mask = ~memory.mask.unsqueeze(1)
        scores = scores.masked_fill(mask if heads == 1 else mask.repeat(1, 1, heads), -torch.inf)
        scores = gather_rows(scores, steps, layout)
        if heads == 1:
            weights, remembered = self.window(scores, seen_by_window, remembered, self.normalizer)
        else:
            weights = self.normalizer(scores.unflatten(-1, (heads, -1))).flatten(-2) / heads
        state = tuple(a + weights.squeeze(1) for a in attended), remembered
        return weights if open_ is None else weights * torch.sigmoid(open_), state

    def weights(self, query: Float[Tensor, "N T P"], memory: Prepared) -> Float[Tensor, "N T S"]:
        """Weights of all steps, starting at the first step; the mean over the heads."""
        return self.shown(
            self.attend(query, memory, self.initial_attention_state(memory, query.size(0)))[0]
        )

    def shown(self, weights: Float[Tensor, "N T HS"]) -> Float[Tensor, "N T S"]:
        """The total weight of each position over all heads, without the gate."""
        if self.gate is not None:
            weights = weights / weights.sum(-1, keepdim=True)
        return (
            weights
            if self.score.heads == 1
            else weights.unflatten(-1, (self.score.heads, -1)).sum(-2)
        )

    def each(self, weights: Float[Tensor, "N T HS"]) -> Float[Tensor, "N H T S"] | None:
        """The weights of each head, rescaled so that each row sums to 1; None if there is only one head."""
        heads = self.score.heads
        if self.gate is not None:
            weights = weights / weights.sum(-1, keepdim=True)
        return None if heads == 1 else heads * weights.unflatten(-1, (heads, -1)).transpose(1, 2)


def check_unused(window: Window | None, normalizer: Normalizer | None) -> None:
    """Raises ValueError if a window or normaliser is chosen that a network without attention has no use for."""
    if type(window) not in (Window, type(None)) or not isinstance(normalizer, Softmax | None):
        raise ValueError(
            "attention=none uses no window or normalizer: leave window=global and normalizer=softmax"
        )


def average(
    weights: Float[Tensor, "N T HS"], memory: Prepared, layout: Layout | None = None
) -> Float[Tensor, "N T M"]:
    """Weighted sums of the memory's values, one for each row and step."""
    summed = torch.bmm(
        scatter_rows(weights, memory.mask.size(0), layout).to(memory.values.dtype),
        memory.by_head(memory.values),
    )
    return gather_rows(summed, weights.size(1), layout)
