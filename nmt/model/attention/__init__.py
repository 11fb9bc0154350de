"""Attention: score + window + normaliser + weighted sum (Bahdanau et al. 2015, eq. 5-6; Luong et
al. 2015, eq. 7).

    α_ts = normalise_s(score(q_t, h_s)), within the window        c_t = β_t Σ_s α_ts h_s

β is 1, or the gate of Xu et al. 2015 (section 4.2.1), σ(f(q_t)): how much the context counts for
the next word.

Score, window and normaliser are independent of each other: a score is a file beside this one, a
window a file in window/, a normaliser a file in normalizer/. Each has a YAML in conf/. With H
heads, a row of weights has H·S entries, head by head.

Laws that every attention keeps: nmt/analysis/attention_laws.py.

Read: this file, dot, general, concat, the rest in any order.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import (
    Encoded,
    Layout,
    Prepared,
    gather_rows,
    scatter_rows,
    sentences_of_rows,
)
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.normalizer.softmax import Softmax
from nmt.model.attention.window import Window
from nmt.model.layers.numeric import to_float, xavier
from nmt.model.layers.packed import WeightBlock, native
from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import usable
from nmt.model.native.native_functions import Form, NativeMemory

AttentionState = tuple[tuple[Tensor, ...], ...]
"""State of the score, total weights so far [N S] if it recurs, and state of the window; rows
first."""


class Score(nn.Module):
    """Base of all scores, which measure how well each query fits each position of the memory. By
    itself it is the dot product.

    Two parts are computed before `forward`: `keys`, once per sentence, and the product with
    `query_layer`. Decoders that recur through attention multiply by `query_layer` and by their own
    recurrent weights in one product.

    Every constructor has the arguments `query_size` (Q, features of a query) and `memory_size` (M,
    features of an annotation).

    query_layer: linear map of the query (None: the query is used as it is)
    heads: number of heads H, each with its own scores and perhaps its own values
    recurs: whether the score depends on the weights of earlier steps, so that it is called step by
        step
    """

    heads = 1
    recurs = False
    query_layer: nn.Linear | None

    def __init__(self) -> None:
        super().__init__()
        self.query_layer = None

    def keys(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S K"]:
        """Annotations in the form that is compared with queries.

        values: annotations of B sources
        """
        return values

    def values(self, values: Float[Tensor, "B S M"]) -> Float[Tensor, "B S HM"]:
        """Annotations in the form that is summed, heads side by side.

        values: annotations of B sources
        """
        return values

    def forward(
        self,
        query: Float[Tensor, "B T P"],
        keys: Float[Tensor, "B S K"],
        *attended: Float[Tensor, "B T S"],
    ) -> Float[Tensor, "B T HS"]:
        """Unnormalised scores.

        query: outputs of `query_layer`
        keys: results of `keys`
        attended: if the score recurs, the total weight of each position in earlier steps
        """
        return torch.bmm(query, keys.transpose(1, 2))

    @property
    def native_form(self) -> Form | None:
        """Equation of `forward`, if a native kernel computes it."""
        return "product" if type(self).forward is Score.forward else None

    @property
    def direction(self) -> Float[Tensor, " K"] | None:
        """The vector that the hidden units of additive scores are multiplied by; None for
        products."""
        return None


class ProjectedQuery(NamedTuple):
    """A query [N T P] split into the parts of score, window and gate."""

    score: Tensor
    window: Tensor | None
    gate: Tensor | None


class Attention(nn.Module):
    """Attention weights of each query over the real positions of its sentence's memory.

    It has no state between calls. All rows of one sentence (the hypotheses of a beam) are queries
    of the same memory, which is never copied.

    score: how well queries fit positions
    window: positions that each query may attend to (None: all)
    normalizer: function from scores to weights (None: softmax)

    Raises ValueError if several heads are combined with a window, or a normaliser with a window
    that does not normalise.
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
        """Adds the gate β of the context; the constructor of a decoder calls this.

        query_size: Q, features of a decoder state
        """
        self.gate = xavier(nn.Linear(query_size, 1))

    @property
    def recurs(self) -> bool:
        """Whether the weights of a step depend on those of earlier steps."""
        return self.score.recurs or self.window.recurs

    def prepare(self, encoded: Encoded) -> Prepared:
        """Keys and values of B sources, computed once.

        encoded: output of an encoder
        """
        values = self.score.values(encoded.values)  # [B, S, H·M]
        return Prepared(
            encoded=encoded,
            keys=to_float(self.score.keys(encoded.values)),
            values=values,
            projected_values=values,
            decoder_init=encoded.final_state,
        )

    def initial_attention_state(self, memory: Prepared, rows: int) -> AttentionState:
        """State before the first step.

        memory: memory of the sentences
        rows: N, equally many for each sentence
        """
        window_state = self.window.initial_state(memory.encoded, rows)
        if not self.score.recurs:
            return (), window_state
        return (memory.values.new_zeros(rows, memory.mask.size(1)),), window_state

    @property
    def reads_rows(self) -> bool:
        """Whether a step of a search can read the memory row by row, as native_decoding.py does."""
        return (
            self.score.native_form is not None
            and type(self.window) is Window
            and isinstance(self.normalizer, Softmax)
            and self.gate is None
        )

    @property
    def _query_layers(self) -> list[nn.Linear]:
        layers = (self.score.query_layer, self.window.query_layer, self.gate)
        return [layer for layer in layers if layer is not None]

    def query_blocks(self) -> list[WeightBlock]:
        """Weight blocks whose products with a decoder state `query` needs.

        The list is empty if the state is used as it is.
        """
        return [(layer.weight, layer.bias) for layer in self._query_layers]

    def query(self, query: Float[Tensor, "*rows Q"], *products: Tensor) -> Float[Tensor, "*rows P"]:
        """The query's projections for score, window and gate, side by side.

        query: decoder states
        products: their products with `query_blocks`
        """
        parts = products if self.score.query_layer is not None else (query, *products)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def project(self, query: Float[Tensor, "N T Q"]) -> Float[Tensor, "N T P"]:
        """Projections of queries for score, window and gate, side by side.

        query: decoder states
        """
        return self.query(query, *(layer(query) for layer in self._query_layers))

    def _split(self, query: Float[Tensor, "N T P"]) -> ProjectedQuery:
        gate = None
        window = None
        if self.gate is not None:
            # The order of `_query_layers`, from the end: gate, window, score.
            query, gate = query.split([query.size(-1) - 1, 1], -1)
        if self.window.query_layer is not None:
            size = self.window.query_layer.out_features
            query, window = query.split([query.size(-1) - size, size], -1)
        return ProjectedQuery(query, window, gate)

    def attend(
        self,
        query: Float[Tensor, "N T P"],
        memory: Prepared,
        state: AttentionState,
        layout: Layout | None = None,
    ) -> tuple[Float[Tensor, "N T HS"], AttentionState]:
        """Weights, and the state after the last step.

        Each row of weights sums to 1, or to β with a gate. Padding gets exactly 0.

        query: projected queries
        memory: memory of the sentences
        state: state before the first step
        layout: rows of a search (None: equally many rows per sentence)
        """
        if not self.recurs or query.size(1) == 1:
            return self._attend(query, memory, state, layout)
        steps = []
        for query_t in query.split(1, 1):
            weights, state = self._attend(query_t, memory, state, layout)  # [N, 1, H·S]
            steps.append(weights)
        return torch.cat(steps, 1), state

    def native_memory(
        self, memory: Prepared, values: Float[Tensor, "B S X"], layout: Layout | None
    ) -> NativeMemory | None:
        """The memory for native kernels, which attend and sum the values; None where they cannot.

        memory: memory of the sentences
        values: vectors to sum, one for each position
        layout: rows of a search
        """
        form = self.score.native_form
        if form is None or not self.reads_rows:
            return None
        if layout is not None or self.score.heads > 1 or not torch.is_grad_enabled():
            return None
        dtype = values.dtype
        if torch.is_autocast_enabled(values.device.type):
            dtype = torch.get_autocast_dtype(values.device.type)
        if not usable(memory.keys, values, values.new_empty(0, dtype=dtype)):
            return None
        direction: Tensor | None = getattr(self.score, "direction", None)
        return NativeMemory(form, memory.keys, values, memory.mask, direction, dtype)

    def attend_and_sum(
        self,
        query: Float[Tensor, "N T P"],
        memory: Prepared,
        state: AttentionState,
        layout: Layout | None = None,
    ) -> tuple[Float[Tensor, "N T HS"], Float[Tensor, "N T M"], AttentionState]:
        """Weights, contexts, and the state after the last step.

        query: projected queries
        memory: memory of the sentences
        state: state before the first step
        layout: rows of a search (None: equally many rows per sentence)
        """
        native = self.native_memory(memory, memory.values, layout)
        if native is not None:
            return *native.attend(query), state
        weights, state = self.attend(query, memory, state, layout)
        return weights, average(weights, memory, layout), state

    def _attend(
        self, query: Tensor, memory: Prepared, state: AttentionState, layout: Layout | None
    ) -> tuple[Tensor, AttentionState]:
        sentences = memory.mask.size(0)
        heads = self.score.heads
        if self.reads_rows and query.size(1) == 1 and native(query):
            rows = sentences_of_rows(len(query), memory, layout)
            weights = native_decoding.attention(
                query.squeeze(1), memory.keys, memory.mask, rows, self.score.direction
            )
            return weights.unsqueeze(1), state  # [N, 1, S]
        attended, window_state = state
        parts = self._split(to_float(query))
        scores = self.score(
            scatter_rows(parts.score, sentences, layout),
            memory.keys,
            *(scatter_rows(weights.unsqueeze(1), sentences, layout) for weights in attended),
        )  # [B, n, H·S]
        is_padding = ~memory.mask.unsqueeze(1)  # [B, 1, S]
        if heads > 1:
            is_padding = is_padding.repeat(1, 1, heads)  # [B, 1, H·S]
        scores = scores.masked_fill(is_padding, -torch.inf)  # [B, n, H·S]
        scores = gather_rows(scores, query.size(1), layout)  # [N, T, H·S]
        if heads == 1:
            weights, window_state = self.window(scores, parts.window, window_state, self.normalizer)
        else:
            by_head = self.normalizer(scores.unflatten(-1, (heads, -1)))  # [N, T, H, S]
            # All heads together sum to 1.
            weights = by_head.flatten(-2) / heads
        state = tuple(total + weights.squeeze(1) for total in attended), window_state
        if parts.gate is not None:
            weights = weights * torch.sigmoid(parts.gate)
        return weights, state

    def weights(self, query: Float[Tensor, "N T P"], memory: Prepared) -> Float[Tensor, "N T S"]:
        """Weights of all steps from the first step on: the mean over the heads, without the gate.

        query: projected queries
        memory: memory of the sentences
        """
        start = self.initial_attention_state(memory, query.size(0))
        weights, _ = self.attend(query, memory, start)
        return self.mean_over_heads(weights)

    def mean_over_heads(self, weights: Float[Tensor, "N T HS"]) -> Float[Tensor, "N T S"]:
        """Weight of each position, without the gate; each row sums to 1.

        weights: weights of all heads, result of `attend`
        """
        weights = self._without_gate(weights)
        if self.score.heads == 1:
            return weights
        return weights.unflatten(-1, (self.score.heads, -1)).sum(-2)  # [N, T, H, S] → [N, T, S]

    def by_head(self, weights: Float[Tensor, "N T HS"]) -> Float[Tensor, "N H T S"] | None:
        """Weights of each head, without the gate; each row sums to 1. None for a single head.

        weights: weights of all heads, result of `attend`
        """
        heads = self.score.heads
        if heads == 1:
            return None
        by_head = self._without_gate(weights).unflatten(-1, (heads, -1))  # [N, T, H, S]
        # The weights of a head sum to 1/H.
        return heads * by_head.transpose(1, 2)

    def _without_gate(self, weights: Tensor) -> Tensor:
        return weights if self.gate is None else weights / weights.sum(-1, keepdim=True)


def check_unused(window: Window | None, normalizer: Normalizer | None) -> None:
    """Raises ValueError if a network without attention has settings of attention.

    window: window, which must be the default
    normalizer: normaliser, which must be the default
    """
    if type(window) not in (Window, type(None)) or not isinstance(normalizer, Softmax | None):
        raise ValueError(
            "attention=none uses no window or normalizer: leave window=global and "
            "normalizer=softmax"
        )


def average(
    weights: Float[Tensor, "N T HS"], memory: Prepared, layout: Layout | None = None
) -> Float[Tensor, "N T M"]:
    """Contexts: weighted sums of the memory's values, one for each row and step.

    weights: attention weights, result of `Attention.attend`
    memory: memory of the sentences
    layout: rows of a search (None: equally many rows per sentence)
    """
    return sums(weights, memory.values, memory, layout)


def sums(
    weights: Float[Tensor, "N T HS"],
    values: Float[Tensor, "B S HX"],
    memory: Prepared,
    layout: Layout | None = None,
) -> Float[Tensor, "N T X"]:
    """Weighted sums of vectors of the source positions, one for each row and step.

    weights: attention weights, result of `Attention.attend`
    values: vectors of each position, heads side by side
    memory: memory of the sentences
    layout: rows of a search (None: equally many rows per sentence)
    """
    if weights.size(1) == 1 and memory.heads == 1 and native(weights):
        sentences = sentences_of_rows(len(weights), memory, layout)
        return native_decoding.weighted_sum(weights.squeeze(1), values, sentences).unsqueeze(1)
    by_sentence = scatter_rows(weights, memory.mask.size(0), layout)  # [B, n, H·S]
    by_position = memory.by_head(values)  # [B, H·S, X]
    products = torch.bmm(by_sentence.to(values.dtype), by_position)  # [B, n, X]
    return gather_rows(products, weights.size(1), layout)
