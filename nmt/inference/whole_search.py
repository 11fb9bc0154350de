"""Complete beam search in C++ (nmt/model/native/beam_search.cpp) for the decoders of Bahdanau et
al. and Luong et al.

The result is equal to that of the beam search in Python. No Python code runs between two decoder
steps; for single sentences, Python code would take most of the time and delay other threads.
"""

from collections.abc import Sequence
from typing import Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from nmt.foundation.interfaces import BOS, EOS, Hypothesis, Prepared, Request, State
from nmt.model.attention import Score
from nmt.model.decoder.bahdanau import Bahdanau
from nmt.model.decoder.luong import Luong
from nmt.model.layers.cells.gru import GRU
from nmt.model.layers.packed import current_weights, join, native
from nmt.model.layers.recurrence import Recurrent
from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import call
from nmt.model.seq2seq import Seq2Seq
from nmt.search.penalty import Penalty, PenaltyName

TABLE = 2**24
"""Maximum number of float32 entries in the precomputed table of GRU input gates (64 MB)."""
CACHED = 2**19
"""Number of logits ranked at a time: 2 MB in float32, which fit in the processor's cache."""


def computes(model: Seq2Seq, memory: Prepared) -> bool:
    """Returns whether the beam search in C++ supports this network and this encoder memory."""
    decoder: Any = model.decoder
    weights = current_weights()
    if type(decoder) not in (Bahdanau, Luong) or weights is None or not native(memory.values):
        return False
    layers = _layers(decoder)
    attention = decoder.attention
    entries = model.target_embedding.num_embeddings * 3 * decoder.hidden_size
    return (
        native_decoding.matrix_product(weights.precision) is not None
        and len(layers) == 1
        and type(layers[0]) is GRU
        and layers[0].is_torch_layer
        and isinstance(decoder.norm, torch.nn.Identity)
        and attention.reads_rows
        and _supports(decoder, attention.score)
        and model.lexical is None
        and model.output_layer.is_linear
        and entries <= TABLE
    )


def _layers(decoder: Any) -> list[Recurrent]:
    """Returns the recurrent layers of a decoder, lowest first."""
    if type(decoder) is Bahdanau:
        return [decoder.bottom, *decoder.upper.layers]
    return list(decoder.layers.layers)


def _supports(decoder: Any, score: Score) -> bool:
    """Returns whether the beam search in C++ supports the score function of the attention.

    For the decoder of Bahdanau et al., additive scores and dot products of decoder state and keys
    are supported. For the decoder of Luong et al., only the dot products are supported.
    """
    is_product = score.direction is None and score.query_layer is None
    is_additive = score.direction is not None and score.query_layer is not None
    return is_product or (is_additive and type(decoder) is Bahdanau)


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
    limits = torch.tensor([request.max_length for request in requests])  # [B]
    longest = int(limits.max()) + 1
    # Outputs of the C++ function: tokens [sentences, n_best, positions], values per hypothesis,
    # and the number of hypotheses of each sentence
    words = torch.empty(len(requests), n_best, longest, dtype=torch.int64)
    log_probs = torch.empty(len(requests), n_best, dtype=torch.float64)
    scores = torch.empty_like(log_probs)
    counts = torch.empty_like(limits)  # [B], number of hypotheses
    values = memory.values.contiguous()
    keys = memory.keys.contiguous()
    vocabulary = model.output.out_features
    weights = current_weights()
    assert weights is not None
    product = native_decoding.matrix_product(weights.precision)
    assert product is not None
    sizes = (
        *values.shape[:2],
        decoder.hidden_size,
        values.size(2),
        decoder.readout_size,
        vocabulary,
        keys.size(2),
    )
    scoring = (get_args(PenaltyName).index(penalty.name), penalty.alpha)
    attends_first = type(decoder) is Bahdanau
    projected = memory.projected_values.contiguous() if attends_first else None
    call(
        "beam_search", product.address, product.kind, *sizes, width, n_best, longest,
        BOS, EOS, max(32, CACHED // vocabulary), *scoring,
        *weights.keep(model, "whole search", lambda: _tables(model, product)),
        decoder.attention.score.direction, projected, keys, values, memory.mask,
        state.cells[0][0].contiguous(), limits, words, log_probs, scores, counts,
    )  # fmt: skip
    return _hypotheses(words, log_probs, scores, counts)


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


def _tables(model: Seq2Seq, product: native_decoding.MatrixProduct) -> list[Tensor | None]:
    """Returns the tensors that the C++ beam search reads: tables of the target tokens, then the
    weights and biases of the three matrix multiplications of a decoder step.

    The first table [V, 3Q] contains the GRU input gates of each token, W_ih E y + b_ih. The second
    one [V, 2D] contains the part of a maxout readout that depends on the token; None for other
    readouts.
    """
    decoder: Any = model.decoder
    [layer] = _layers(decoder)
    embeddings = model.target_embedding.weight  # [V, E]
    blocks = [layer.weight_block("hh")]
    if type(decoder) is Bahdanau:
        size = decoder.embedding_size
        blocks += decoder.attention.query_blocks()
        gates = F.linear(embeddings, *layer.weight_block("ih", slice(size)))  # [V, 3·Q]
        readout: Any = decoder.readout.layer
        # [2·D, Q], [2·D, E], [2·D, M]
        of_state, of_token, of_context = readout.weight.split(
            [decoder.hidden_size, size, decoder.memory_size], 1
        )
        embedded = F.linear(embeddings, of_token)  # [V, 2·D]
        combine = (torch.cat([of_context, of_state], 1), readout.bias)
    else:
        gates = F.linear(embeddings, *layer.weight_block("ih"))  # [V, 3·Q]
        embedded = None
        combine = (decoder.combine.weight, decoder.combine.bias)
    layers: list[Any] = [join(*blocks), combine, (model.output.weight, model.output.bias)]
    return [
        gates,
        embedded,
        *(t for weight, bias in layers for t in (product.layout(weight), bias)),
    ]
