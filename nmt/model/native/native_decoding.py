"""Steps of a search by decoding.cpp, between the matrix products.

decoding.cpp names the counterpart of every function in PyTorch. Tensors are float32 numbers on a CPU, without gradients.
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
    """Attention weights; padding gets 0.

    query: projected queries
    keys: keys of the memory
    mask: True for real positions
    sentences: sentence of each row
    direction: v of additive scores vᵀ tanh(q + k / 2) (None: scores qᵀ k)
    """
    keys = keys.contiguous()
    weights = torch.empty(len(query), keys.size(1))
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
    """Weighted sums of the values of each row's sentence."""
    values = values.contiguous()
    sums = torch.empty(len(weights), values.size(2))
    sizes = (*weights.shape, values.size(2))
    call("search_weighted_sum", *sizes, weights, values, sentences, sums, values.size(2))
    return sums


def quantize(x: Float[Tensor, "N K"]) -> tuple[UInt8[Tensor, "N K"], Float[Tensor, " N"]]:
    """Rows in 8 bits, 128 for 0, and the largest absolute number of each row, which is 127 steps away from 0."""
    low = torch.empty(x.shape, dtype=torch.uint8)
    largest = torch.empty(len(x))
    call("search_quantize", *x.shape, x.contiguous(), low, largest)
    return low, largest


def rescale_(
    y: Float[Tensor, "N M"], factors: Float[Tensor, " N"], bias: Float[Tensor, " M"]
) -> Float[Tensor, "N M"]:
    """y times a factor for each row, plus the bias, in place."""
    call("search_rescale", *y.shape, y, factors, bias)
    return y


def tanh(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Hyperbolic tangent."""
    y = torch.empty(x.shape)
    call("search_tanh", x.numel(), x.contiguous(), y)
    return y


def best(
    logits: Float[Tensor, "N V"], count: int, end: int
) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"], Float[Tensor, " N"]]:
    """The most probable words of each row without PAD and BOS.

    logits: unnormalised log-probabilities
    count: number of words of a row, k
    end: EOS; the words before it, except UNK, are left out

    Returns their log-probabilities, largest first, the words, and the log-probability of EOS.
    """
    values = torch.empty(len(logits), count)
    words = torch.empty(values.shape, dtype=torch.int64)
    ends = torch.empty(len(logits))
    call("search_best", *logits.shape, count, end, logits, values, words, ends)
    return values, words, ends


@functools.cache
def matrix_product(precision: str) -> int | None:
    """Address of the product of matrices in PyTorch's own library; None where it does not show a fast one.

    Products for int8 are bfloat16, too: the library of PyTorch shows none in 8 bits.
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
    """Outputs and last states of gated recurrent units in both directions; padding gets zeros.

    precision: of the products; weights are bfloat16 unless it is float32
    x: inputs
    lengths: positions of each sentence
    weights: weight and bias of input and state, direction by direction
    """
    units = weights[2].size(1)
    outputs = torch.zeros(*x.shape[:2], 2 * units)
    last = torch.empty(len(x), 2 * units)
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
