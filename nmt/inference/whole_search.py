"""A whole beam search in C++ (model/native/beam_search.cpp), for networks that it can compute.

It finds what nmt/search finds with a `ModelStep`. Between two steps there is no Python, which
otherwise takes most of the time: for single sentences, and where other threads wait for Python's
lock.
"""

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from nmt.foundation.interfaces import BOS, EOS, Hypothesis, Prepared, Request, State
from nmt.model.decoder.luong import Luong
from nmt.model.layers.cells.gru import GRU
from nmt.model.layers.packed import current_weights, native
from nmt.model.native.kernel_library import call
from nmt.model.native.native_decoding import matrix_product
from nmt.model.seq2seq import Seq2Seq
from nmt.search.penalty import Penalty, PenaltyName

TABLE = 2**24
"""Largest number of entries of the table of gates; 64 MB."""
LOGITS = 2**19
"""Logits that are ranked at a time: 2 MB stay in the processor's cache."""


def computes(model: Seq2Seq, memory: Prepared) -> bool:
    """Whether the library computes the searches of a network on this memory."""
    decoder: Any = model.decoder
    weights = current_weights()
    if type(decoder) is not Luong or weights is None or not native(memory.values):
        return False
    attention = decoder.attention
    entries = model.target_embedding.num_embeddings * 3 * decoder.hidden_size
    return (
        matrix_product(weights.precision) is not None
        and len(decoder.layers.layers) == 1
        and type(decoder.layers.layers[0]) is GRU
        and decoder.layers.layers[0].is_torch_layer
        and isinstance(decoder.norm, torch.nn.Identity)
        and attention.reads_rows
        and attention.score.direction is None
        and attention.score.query_layer is None
        and model.lexical is None
        and model.copying is None
        and entries <= TABLE
    )


def whole_search(
    model: Seq2Seq,
    memory: Prepared,
    state: State,
    requests: Sequence[Request],
    width: int,
    n_best: int,
    penalty: Penalty,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first, as `breadth_first_search` returns
    them."""
    decoder: Any = model.decoder
    layer = decoder.layers.layers[0]
    limits = torch.tensor([request.max_length for request in requests])  # [B]
    longest = int(limits.max()) + 1
    words = torch.empty(len(requests), n_best, longest, dtype=torch.int64)  # [B, n_best, T]
    log_probs = torch.empty(len(requests), n_best, dtype=torch.float64)  # [B, n_best]
    scores = torch.empty_like(log_probs)
    counts = torch.empty_like(limits)  # [B], hypotheses that were found
    values = memory.values.contiguous()
    vocabulary = model.output.out_features
    weights = current_weights()
    assert weights is not None
    is_low = weights.precision != "float32"
    sizes = (*values.shape[:2], layer.size, values.size(2), decoder.readout_size, vocabulary)
    scoring = (get_args(PenaltyName).index(penalty.name), penalty.alpha)
    call(
        "beam_search", matrix_product(weights.precision), is_low, *sizes, width, n_best, longest,
        BOS, EOS, max(32, LOGITS // vocabulary), *scoring,
        *weights.keep(model, "whole search", lambda: _tables(model, is_low)),
        memory.keys.contiguous(), values, memory.mask, state.cells[0][0].contiguous(),
        limits, words, log_probs, scores, counts,
    )  # fmt: skip
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


def _tables(model: Seq2Seq, is_low: bool) -> list[Tensor]:
    """Gates of the input of every word, W_ih E y + b_ih [V 3Q]; weights and biases of the three
    products of a step."""
    decoder: Any = model.decoder
    layer = decoder.layers.layers[0]
    layers = (decoder.combine, model.output)
    blocks = [layer.weight_block("hh"), *((linear.weight, linear.bias) for linear in layers)]
    gates = F.linear(model.target_embedding.weight, *layer.weight_block("ih"))  # [V, 3·Q]
    return [gates, *(t for w, b in blocks for t in (w.bfloat16() if is_low else w, b))]
