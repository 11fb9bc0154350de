"""Python interface of decoding.cpp: operations of search steps in C++, except most matrix
multiplications.

decoding.cpp names the PyTorch equivalent of every function. All tensors are float32, on a CPU, and
without gradients.
"""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from nmt.model.native.kernel_library import call


def attention(
    query: Float[Tensor, "N K"],
    keys: Float[Tensor, "B S K"],
    mask: Bool[Tensor, "B S"],
    sentences: Int[Tensor, " N"],
    direction: Float[Tensor, " K"] | None,
) -> Float[Tensor, "N S"]:
    """Returns the attention weights of each hypothesis; padding has weight 0.

    query: projected queries
    keys: attention keys k of the encoder memory; for additive scores, twice the projected
        annotations
    mask: True for source positions that are not padding
    sentences: sentence index of each hypothesis
    direction: vector v of additive scores vᵀ tanh(q + k / 2), for query q; None for scores qᵀ k
    """
    keys = keys.contiguous()
    weights = torch.empty(len(query), keys.size(1))  # [N, S]
    sizes = (*weights.shape, keys.size(2))
    call(
        "search_attention",
        *sizes,
        query,
        query.stride(0),
        keys,
        mask,
        sentences,
        direction,
        weights,
    )
    return weights


def weighted_sum(
    weights: Float[Tensor, "N S"], values: Float[Tensor, "B S M"], sentences: Int[Tensor, " N"]
) -> Float[Tensor, "N M"]:
    """Returns the weighted sum of memory values for each hypothesis; `sentences` contains the
    sentence index of each hypothesis."""
    values = values.contiguous()
    sums = torch.empty(len(weights), values.size(2))  # [N, M]
    sizes = (*weights.shape, values.size(2))
    call("search_weighted_sum", *sizes, weights, values, sentences, sums, values.size(2))
    return sums


def quantize(x: Float[Tensor, "N K"]) -> tuple[UInt8[Tensor, "N K"], Float[Tensor, " N"]]:
    """Quantizes each row to unsigned 8-bit integers. Returns the quantized rows, and the largest
    absolute value of each row. 0 becomes 128; the largest absolute value becomes 128 ± 127."""
    low = torch.empty(x.shape, dtype=torch.uint8)  # [N, K]
    largest = torch.empty(len(x))  # [N]
    call("search_quantize", *x.shape, x.contiguous(), low, largest)
    return low, largest


def rescale_(
    y: Float[Tensor, "N M"], factors: Float[Tensor, " N"], bias: Float[Tensor, " M"]
) -> Float[Tensor, "N M"]:
    """Multiplies each row of y by a factor and adds the bias, in place; returns y."""
    call("search_rescale", *y.shape, y, factors, bias)
    return y


def tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Returns the element-wise hyperbolic tangent."""
    y = torch.empty(x.shape)
    call("search_tanh", x.numel(), x.contiguous(), y)
    return y


def best(
    logits: Float[Tensor, "N V"], count: int, end: int
) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"], Float[Tensor, " N"]]:
    """Finds the most probable next tokens of each hypothesis, PAD and BOS excluded.

    logits: unnormalised log-probabilities
    count: k, number of tokens per hypothesis
    end: id of EOS; all smaller ids except UNK are excluded

    Returns the log-probabilities of the tokens, largest first, the token ids, and the
    log-probability of EOS.
    """
    values = torch.empty(len(logits), count)  # [N, k]
    words = torch.empty(values.shape, dtype=torch.int64)  # [N, k]
    ends = torch.empty(len(logits))  # [N]
    call("search_best", *logits.shape, count, end, logits, values, words, ends)
    return values, words, ends


@functools.cache
def matrix_product(precision: str) -> int | None:
    """Returns the address of a fast matrix multiplication function in PyTorch's library; None if
    the library exports none.

    precision: float32, bfloat16 or int8; int8 uses the bfloat16 function, because no 8-bit function
        is exported
    """
    if precision != "float32" and not torch.cpu.get_capabilities().get("amx_bf16"):
        return None
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    name = "sgemm_" if precision == "float32" else "gemm_bf16bf16f32_"
    try:
        return ctypes.cast(getattr(ctypes.CDLL(str(path)), name), ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


def read_both_directions(
    precision: str,
    x: Float[Tensor, "B T I"],
    lengths: Int[Tensor, " B"],
    weights: Sequence[Tensor],
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B H"]]:
    """Runs a bidirectional layer of gated recurrent units (GRU); outputs are 0 at padding.

    precision: precision of the matrix multiplications; weights are bfloat16 unless the precision is
        float32
    x: input vectors
    lengths: number of tokens of each sentence
    weights: W_ih, b_ih, W_hh and b_hh, first of the forward and then of the backward direction

    Returns the outputs and the last states.
    """
    units = weights[2].size(1)
    outputs = torch.zeros(*x.shape[:2], 2 * units)  # [B, T, H], 0 at padding
    last = torch.empty(len(x), 2 * units)  # [B, H]
    product = (matrix_product(precision), precision != "float32")
    call(
        "read_both_directions",
        *product,
        *x.shape,
        units,
        x.contiguous(),
        lengths,
        *weights,
        outputs,
        last,
    )
    return outputs, last
