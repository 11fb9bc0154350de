"""Complete beam search in C++ (nmt/model/native/beam_search.cpp) for decoders with one layer of
gated recurrent units: Bahdanau, Conditional, Luong and LuongFeed, without layer normalisation,
copying, lexical model, lexicon and attention windows.

The result is equal to that of the beam search in Python. No Python code runs between two decoder
steps; for single sentences, Python code would take most of the time and delay other threads.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nmt.foundation.interfaces import BOS, EOS, Hypothesis, Prepared, Request, State
from nmt.model.decoder.bahdanau import Bahdanau
from nmt.model.decoder.conditional import Conditional
from nmt.model.decoder.luong import Luong
from nmt.model.decoder.luong_feed import LuongFeed
from nmt.model.layers.cells.gru import GRU
from nmt.model.layers.packed import WeightBlock, current_weights, join, native
from nmt.model.layers.recurrence import Recurrent
from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import call
from nmt.model.seq2seq import Seq2Seq
from nmt.search.penalty import Penalty, PenaltyName

TABLE = 2**24
"""Maximum number of float32 entries in a precomputed table of target tokens (64 MB). For larger
vocabularies, each step multiplies the embeddings of its tokens."""
DECODERS = (Bahdanau, Conditional, Luong, LuongFeed)
CACHED = 2**19
"""Number of logits ranked at a time: 2 MB in float32, which fit in the processor's cache."""


def computes(model: Seq2Seq, memory: Prepared) -> bool:
    """Returns whether the beam search in C++ supports this network and this encoder memory."""
    decoder: Any = model.decoder
    weights = current_weights()
    if type(decoder) not in DECODERS or weights is None or not native(memory.values):
        return False
    layers = _layers(decoder)
    score = decoder.attention.score
    return (
        native_decoding.matrix_product(weights.precision) is not None
        and decoder.num_layers == 1
        and all(type(layer) is GRU and layer.is_torch_layer for layer in layers)
        and isinstance(decoder.norm, torch.nn.Identity)
        and decoder.attention.reads_rows
        and decoder.attention.reads_keys(memory.keys)
        and (score.direction is None) == (score.query_layer is None)
        and model.lexical is None
        and model.output_layer.is_linear
    )


def _layers(decoder: Any) -> list[Recurrent]:
    """Returns the recurrent layers of a decoder without stacked layers, in the order of their
    updates."""
    if type(decoder) is Conditional:
        return [decoder.before, decoder.after]
    if type(decoder) is Bahdanau:
        return [decoder.bottom]
    return list(decoder.layers if type(decoder) is LuongFeed else decoder.layers.layers)


def whole_search(
    model: Seq2Seq,
    memory: Prepared,
    state: State,
    requests: Sequence[Request],
    width: int,
    n_best: int,
    penalty: Penalty,
) -> list[list[Hypothesis]]:
    """Runs a beam search in C++ and returns the `n_best` hypotheses of each sentence, best first.

    model, memory: network and encoder memory that `computes` accepts
    state, requests, width, n_best, penalty: arguments of `ModelStep.search`
    """
    decoder: Any = model.decoder
    limits = torch.tensor([request.max_length for request in requests])  # [B]
    longest = int(limits.max()) + 1
    # Outputs of the C++ function: tokens [sentences, n_best, positions], values per hypothesis,
    # and the number of hypotheses of each sentence
    words = torch.empty(len(requests), n_best, longest, dtype=torch.int64)
    log_probs = torch.empty(len(requests), n_best, dtype=torch.float64)
    scores = torch.empty_like(log_probs)
    counts = torch.empty_like(limits)  # [B]
    values = memory.values.contiguous()
    direction = decoder.attention.score.direction
    keys = memory.keys.contiguous() if direction is None else memory.keys.exp()
    vocabulary = model.output.out_features
    weights = current_weights()
    assert weights is not None
    product = native_decoding.matrix_product(weights.precision)
    assert product is not None
    tables = weights.keep(model, "whole search", lambda: _tables(model, product))
    sizes = (
        *values.shape[:2],
        decoder.hidden_size,
        values.size(2),
        decoder.readout_size,
        vocabulary,
        keys.size(2),
        decoder.embedding_size,
        tables.token_size,
    )
    exponent = torch.tensor([penalty.alpha], dtype=torch.float64)
    call(
        "beam_search", product.address, product.kind, *sizes, width, n_best, longest,
        BOS, EOS, max(32, CACHED // vocabulary), get_args(PenaltyName).index(penalty.name),
        exponent, *tables.tensors, direction, _projected(decoder, memory), keys, values,
        memory.mask, state.cells[0][0].contiguous(), limits, words, log_probs, scores, counts,
    )  # fmt: skip
    return _hypotheses(words, log_probs, scores, counts)


def _projected(decoder: Any, memory: Prepared) -> Float[Tensor, "B S G"] | None:
    """Returns the memory values multiplied by the context's weights of the gates; None for decoders
    whose gates do not read the context."""
    if type(decoder) is Conditional:
        # The bias may be added to each value, because attention weights sum to 1.
        return memory.projected_values + decoder.after.weight_block("ih")[1]
    return memory.projected_values.contiguous() if type(decoder) is Bahdanau else None


def _hypotheses(
    words: Int[Tensor, "B n L"],
    log_probs: Float[Tensor, "B n"],
    scores: Float[Tensor, "B n"],
    counts: Int[Tensor, " B"],
) -> list[list[Hypothesis]]:
    """Converts the tensors of the beam search in C++ to one list of hypotheses per sentence.

    words: tokens of each hypothesis, followed by EOS
    log_probs, scores: log-probability and score of each hypothesis
    counts: number of hypotheses that the search has found for each sentence
    """
    hypotheses_by_sentence = zip(
        words.tolist(), log_probs.tolist(), scores.tolist(), counts.tolist(), strict=True
    )
    return [
        [
            Hypothesis(tokens[: tokens.index(EOS)], log_prob, score)
            for tokens, log_prob, score in list(zip(*hypotheses, strict=True))[:count]
        ]
        for *hypotheses, count in hypotheses_by_sentence
    ]


class _Tables(NamedTuple):
    """Tensors that the C++ beam search reads.

    token_size: number of features that a decoder step adds for its input token
    tensors: table of the target tokens, or their embeddings; weight and bias of each matrix
        multiplication of a decoder step, None if the decoder does not have it
    """

    token_size: int
    tensors: list[Tensor | None]


def _tables(model: Seq2Seq, product: native_decoding.MatrixProduct) -> _Tables:
    """Returns the tensors that depend only on the weights of the model."""
    decoder: Any = model.decoder
    first, *further = _layers(decoder)
    size = decoder.embedding_size
    # Weight blocks by the vector that they multiply; those of the same vector are concatenated
    of_token: list[WeightBlock] = [first.weight_block("ih", slice(size))]  # [3·Q, E]
    of_feed = [(first.weight_block("ih", slice(size, None))[0], None)]  # [3·Q, D]
    of_state: list[WeightBlock] = [first.weight_block("hh")]
    of_new_state: list[WeightBlock] = [layer.weight_block("hh") for layer in further]
    queries = of_state if type(decoder) is Bahdanau else of_new_state
    queries.extend(decoder.attention.query_blocks())
    combine: Any = decoder.readout.layer if type(decoder) is Bahdanau else decoder.combine
    of_context = combine.weight
    if type(decoder) in (Bahdanau, Conditional):
        # [R, Q], [R, E], [R, M] for R outputs
        state, token, context = combine.weight.split(
            [decoder.hidden_size, size, decoder.memory_size], 1
        )
        of_token.append((token, None))
        of_context = torch.cat([context, state], 1)  # [R, M + Q]
    token_size = sum(len(weight) for weight, _ in of_token)
    tokens = model.target_embedding.weight  # [V, E]
    if len(tokens) * token_size <= TABLE:
        tokens = F.linear(tokens, *join(*of_token))  # [V, token_size]
        of_token = []
    products: list[Any] = [
        of_token,
        of_state,
        of_feed if type(decoder) is LuongFeed else [],
        of_new_state,
        [(of_context, combine.bias)],
        [(model.output.weight, model.output.bias)],
    ]
    return _Tables(
        token_size, [tokens, *(t for blocks in products for t in _laid_out(product, blocks))]
    )


def _laid_out(
    product: native_decoding.MatrixProduct, blocks: Sequence[WeightBlock]
) -> list[Tensor | None]:
    """Returns the concatenated weight blocks as the matrix multiplication reads them, and their
    bias; None for both without blocks."""
    if not blocks:
        return [None, None]
    weight, bias = join(*blocks)
    return [product.layout(weight), bias]
