"""Attention layer: applies a score, a window and a normaliser, and sums the annotations.

nmt/model/attention/__init__.py has the equations."""

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
from nmt.model.attention import Score
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.normalizer.softmax import Softmax
from nmt.model.attention.window import Window
from nmt.model.layers.numeric import to_float, xavier
from nmt.model.layers.packed import WeightBlock, native
from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import usable
from nmt.model.native.native_functions import LARGEST_KEY, NativeMemory

AttentionState = tuple[tuple[Tensor, ...], ...]
"""State of the attention between decoder steps: (score state, window state), two tuples of tensors
whose first dimension indexes the batch rows.

The score state contains the total weights of earlier steps [N, S]. The score state is empty if the
score does not depend on earlier weights.
"""


class Attention(nn.Module):
    """Attention weights of queries over the memory positions of their sentence, padding excluded.

    The module has no state between calls. In a search, all hypotheses of a sentence share one
    memory without copies.

    score: function that scores memory positions for each query
    window: restriction of the positions that each query may attend to; None without restriction
    normalizer: function from scores to weights; None for softmax
    gate_size: number of features of a decoder state, from which the context gate β is computed;
        None without a gate

    Raises ValueError if a window is combined with several heads, or a normaliser with a window that
    uses no normaliser.
    """

    def __init__(
        self,
        score: Score,
        window: Window | None = None,
        normalizer: Normalizer | None = None,
        gate_size: int | None = None,
    ) -> None:
        super().__init__()
        self.score = score
        self.window = Window(query_size=1) if window is None else window
        self.normalizer: Normalizer = Softmax() if normalizer is None else normalizer
        self.gate = None if gate_size is None else xavier(nn.Linear(gate_size, 1))
        if score.heads > 1 and type(self.window) is not Window:
            raise ValueError(
                f"attention.heads={score.heads} cannot be combined with a window; set window=global"
            )
        if not self.window.normalizes and not isinstance(self.normalizer, Softmax):
            name = type(self.window).__name__.lower()
            raise ValueError(
                f"window={name} ignores the normalizer; set normalizer=softmax, which is the default"
            )

    @property
    def recurs(self) -> bool:
        """Whether attention weights depend on the weights of earlier decoder steps."""
        return self.score.recurs or self.window.recurs

    def prepare(self, encoded: Encoded) -> Prepared:
        """Computes the attention keys and values of B sources, once per source.

        encoded: output of an encoder
        """
        values = self.score.values(encoded.values)  # [B, S, H·M]
        if self.score.heads > 1:
            by_head = values.unflatten(-1, (self.score.heads, encoded.values.size(-1)))
            # One matrix multiplication with weights [N, T, H·S] then sums over all heads.
            values = by_head.transpose(1, 2).flatten(1, 2)  # [B, H·S, M]
        return Prepared(
            encoded=encoded,
            keys=to_float(self.score.keys(encoded.values)),
            values=values,
            projected_values=values,
            decoder_init=encoded.final_state,
        )

    def initial_attention_state(self, memory: Prepared, rows: int) -> AttentionState:
        """Returns the attention state before the first decoder step.

        memory: prepared encoder memory of the sentences
        rows: N, number of batch rows (hypotheses); a multiple of the number of sentences
        """
        shape = (rows, memory.mask.size(1))  # [N, S]
        score_state = (memory.values.new_zeros(shape),) if self.score.recurs else ()
        return score_state, self.window.initial_state(memory.encoded, rows)

    @property
    def reads_rows(self) -> bool:
        """Whether the C++ extension implements this attention: its score, window, normaliser and
        gate. In a search, the extension reads the memory by row (hypothesis), without a copy for
        the beam slots."""
        return (
            self.score.native_form is not None
            and type(self.window) is Window
            and type(self.normalizer) is Softmax
            and self.gate is None
        )

    def reads_keys(self, keys: Float[Tensor, "B S K"]) -> bool:
        """Returns whether the C++ extension can compute the scores of these attention keys from
        their powers without overflow."""
        return self.score.direction is None or bool(keys.detach().abs().amax() <= LARGEST_KEY)

    @property
    def _query_layers(self) -> list[nn.Linear]:
        """Linear layers that project the decoder state for the attention score, the window and the
        context gate, in this order. Absent layers are left out."""
        layers = (self.score.query_layer, self.window.query_layer, self.gate)
        return [layer for layer in layers if layer is not None]

    def query_blocks(self) -> list[WeightBlock]:
        """Returns the weights and biases of the query projections, which decoders fuse with their
        recurrent weights. The list is empty if the decoder state is used unchanged."""
        return [(layer.weight, layer.bias) for layer in self._query_layers]

    def query(self, query: Float[Tensor, "*rows Q"], *products: Tensor) -> Float[Tensor, "*rows P"]:
        """Assembles the projected queries from products that the caller has already computed. The
        projected queries are the inputs of the attention score, the window and the context gate,
        concatenated along the features.

        query: decoder states
        products: decoder states multiplied by each weight block in `query_blocks`
        """
        parts = products if self.score.query_layer is not None else (query, *products)
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def project(self, query: Float[Tensor, "N T Q"]) -> Float[Tensor, "N T P"]:
        """Projects decoder states to queries: inputs of the attention score, the window and the
        context gate, concatenated along the features.

        query: decoder states
        """
        return self.query(query, *(layer(query) for layer in self._query_layers))

    def attend(
        self,
        query: Float[Tensor, "N T P"],
        memory: Prepared,
        state: AttentionState,
        layout: Layout | None = None,
    ) -> tuple[Float[Tensor, "N T HS"], AttentionState]:
        """Returns the attention weights, and the attention state after the last decoder step. The
        weights of a query sum to 1, to less with window.normalized=false, or to the gate β if the
        context has a gate. Padding has weight 0.

        query: projected queries
        memory: prepared encoder memory of the sentences
        state: attention state before the first step
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
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
        """Returns the encoder memory in the form that the C++ extension reads; None if the
        extension does not support this attention, device or dtype.

        memory: prepared encoder memory of the sentences
        values: vectors to sum, one per source position
        layout: beam slot of each row (hypothesis); the extension requires None
        """
        form = self.score.native_form
        is_plain = layout is None and self.score.heads == 1 and self.reads_rows
        if form is None or not is_plain or not torch.is_grad_enabled():
            return None
        dtype = values.dtype
        if torch.is_autocast_enabled(values.device.type):
            dtype = torch.get_autocast_dtype(values.device.type)
        is_usable = usable(memory.keys, values, values.new_empty(0, dtype=dtype))
        if not (is_usable and self.reads_keys(memory.keys)):
            return None
        return NativeMemory(form, memory.keys, values, memory.mask, self.score.direction, dtype)

    def attend_and_sum(
        self,
        query: Float[Tensor, "N T P"],
        memory: Prepared,
        state: AttentionState,
        layout: Layout | None = None,
    ) -> tuple[Float[Tensor, "N T HS"], Float[Tensor, "N T M"], AttentionState]:
        """Returns the attention weights, the contexts, and the attention state after the last
        decoder step.

        query: projected queries
        memory: prepared encoder memory of the sentences
        state: attention state before the first step
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        native_memory = self.native_memory(memory, memory.values, layout)
        if native_memory is not None:
            return *native_memory.attend(query), state
        weights, state = self.attend(query, memory, state, layout)
        return weights, sums(weights, memory.values, memory, layout), state

    def _attend(
        self, query: Tensor, memory: Prepared, state: AttentionState, layout: Layout | None
    ) -> tuple[Tensor, AttentionState]:
        sentences = memory.mask.size(0)
        heads = self.score.heads
        if self.reads_rows and query.size(1) == 1 and native(query):
            rows = sentences_of_rows(len(query), memory, layout)  # [N], sentence of each row
            weights = native_decoding.attention(
                query.squeeze(1), memory.keys, memory.mask, rows, self.score.direction
            )
            return weights.unsqueeze(1), state  # [N, 1, S]
        attended, window_state = state
        # The features of a query are those of the score, the window and the context gate, in this
        # order. Absent parts have no features.
        query = to_float(query)
        gate = None
        window_query = None
        if self.gate is not None:
            query, gate = query.split([query.size(-1) - 1, 1], -1)  # gate [N, T, 1]
        if self.window.query_layer is not None:
            size = self.window.query_layer.out_features
            query, window_query = query.split([query.size(-1) - size, size], -1)  # [N, T, Q]
        scores = self.score(
            scatter_rows(query, sentences, layout),
            memory.keys,
            *(scatter_rows(weights.unsqueeze(1), sentences, layout) for weights in attended),
        )
        scores = to_float(scores)  # [B, n, H·S]; autocast converts products to bfloat16
        is_padding = ~memory.mask.unsqueeze(1)  # [B, 1, S]
        if heads > 1:
            is_padding = is_padding.repeat(1, 1, heads)  # [B, 1, H·S]
        scores = scores.masked_fill(is_padding, -torch.inf)  # [B, n, H·S]
        scores = gather_rows(scores, query.size(1), layout)  # [N, T, H·S]
        if heads == 1:
            weights, window_state = self.window(scores, window_query, window_state, self.normalizer)
        else:
            by_head = self.normalizer(scores.unflatten(-1, (heads, -1)))  # [N, T, H, S]
            # The weights of a query, over all heads together, sum to 1. `MultiHead.values` has the
            # factor H instead.
            weights = by_head.flatten(-2) / heads
        state = tuple(total + weights.squeeze(1) for total in attended), window_state
        if gate is not None:
            # The lower bound lets `_without_gate` divide by β.
            weights = weights * torch.sigmoid(gate).clamp(min=1e-6)  # β, [N, T, 1]
        return weights, state

    def weights(self, query: Float[Tensor, "N T P"], memory: Prepared) -> Float[Tensor, "N T S"]:
        """Returns the attention weights of all decoder steps, averaged over the heads, without the
        factor β of the context gate. The first step starts from the initial attention state.

        query: projected queries
        memory: prepared encoder memory of the sentences
        """
        start = self.initial_attention_state(memory, query.size(0))
        weights, _ = self.attend(query, memory, start)
        return self.mean_over_heads(weights)

    def mean_over_heads(self, weights: Float[Tensor, "N T HS"]) -> Float[Tensor, "N T S"]:
        """Returns the weight of each source position, averaged over the heads, without the factor β
        of the context gate. The weights of a query sum to 1, or to less with
        window.normalized=false.

        weights: attention weights of all heads, computed by `attend`
        """
        weights = self._without_gate(weights)
        if self.score.heads == 1:
            return weights
        return weights.unflatten(-1, (self.score.heads, -1)).sum(-2)  # [N, T, H, S] → [N, T, S]

    def by_head(self, weights: Float[Tensor, "N T HS"]) -> Float[Tensor, "N H T S"] | None:
        """Returns the attention weights of each head, without the factor β of the context gate;
        None for a single head. The weights of a query in one head sum to 1.

        weights: attention weights of all heads, computed by `attend`
        """
        heads = self.score.heads
        if heads == 1:
            return None
        by_head = self._without_gate(weights).unflatten(-1, (heads, -1))  # [N, T, H, S]
        # The weights of a head sum to 1/H.
        return heads * by_head.transpose(1, 2)

    def _without_gate(self, weights: Tensor) -> Tensor:
        if self.gate is None:
            return weights
        smallest = torch.finfo(weights.dtype).tiny  # a gate may be 0 after rounding
        return weights / weights.sum(-1, keepdim=True).clamp_min(smallest)


def check_unused(window: Window | None, normalizer: Normalizer | None) -> None:
    """Raises ValueError if a network without attention has a window or normaliser that differs from
    the default.

    window: configured window; None for the default
    normalizer: configured normaliser; None for the default
    """
    if type(window) not in (Window, type(None)) or not isinstance(normalizer, Softmax | None):
        raise ValueError(
            "attention=none ignores window and normalizer; only the defaults window=global and "
            "normalizer=softmax are permitted"
        )


def sums(
    weights: Float[Tensor, "N T HS"],
    values: Float[Tensor, "B HS X"],
    memory: Prepared,
    layout: Layout | None = None,
) -> Float[Tensor, "N T X"]:
    """Returns the attention-weighted sums of vectors over the source positions, for each batch row
    and decoder step.

    weights: attention weights, computed by `Attention.attend`
    values: one vector per head and source position
    memory: prepared encoder memory of the sentences
    layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
    """
    if weights.size(1) == 1 and native(weights):
        sentences = sentences_of_rows(len(weights), memory, layout)  # [N], sentence of each row
        return native_decoding.weighted_sum(weights.squeeze(1), values, sentences).unsqueeze(1)
    by_sentence = scatter_rows(weights, memory.mask.size(0), layout)  # [B, n, H·S]
    products = torch.bmm(by_sentence.to(values.dtype), values)  # [B, n, X]
    return gather_rows(products, weights.size(1), layout)
