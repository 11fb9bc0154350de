"""Complete beam search in C++ (model/native/beam_search.cpp), for the networks that the code
supports.

The result is equal to the result of the beam search in Python. No Python code runs between two
decoder steps; for single sentences, Python code would take most of the time and delay other
threads.
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
"""Maximum number of float32 entries in the precomputed table of GRU input gates (64 MB)."""
LOGITS = 2**19
"""Number of logits ranked at a time: 2 MB in float32, which fit in the processor's cache."""


def computes(model: Seq2Seq, memory: Prepared) -> bool:
    """Returns whether the C++ extension supports beam search with a network and an encoder
    memory."""
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
        and model.output_layer.is_linear
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
    """Runs a beam search in C++ and returns the `n_best` hypotheses of each sentence, best first.

    width: number of hypotheses per beam
    n_best: number of hypotheses to return for each sentence
    """
    decoder: Any = model.decoder
    layer = decoder.layers.layers[0]
    limits = torch.tensor([request.max_length for request in requests])  # [B]
    longest = int(limits.max()) + 1
    # Outputs of the C++ function: tokens [sentences, n_best, positions], values per hypothesis,
    # and the number of hypotheses of each sentence
    words = torch.empty(len(requests), n_best, longest, dtype=torch.int64)
    log_probs = torch.empty(len(requests), n_best, dtype=torch.float64)
    scores = torch.empty_like(log_probs)
    counts = torch.empty_like(limits)  # [B], number of hypotheses
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
    """Returns the tensors that the C++ beam search reads.

    The first tensor [V, 3Q] contains the GRU input gates of each target token, W_ih E y + b_ih. The
    next tensors are the weights and biases of the three matrix multiplications of a decoder step.
    """
    decoder: Any = model.decoder
    layer = decoder.layers.layers[0]
    layers = (decoder.combine, model.output)
    blocks = [layer.weight_block("hh"), *((linear.weight, linear.bias) for linear in layers)]
    gates = F.linear(model.target_embedding.weight, *layer.weight_block("ih"))  # [V, 3·Q]
    return [gates, *(t for w, b in blocks for t in (w.bfloat16() if is_low else w, b))]
