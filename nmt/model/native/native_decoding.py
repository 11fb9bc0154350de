"""Python interface of decoding.cpp: operations of search steps in C++, except most matrix
multiplications.

decoding.cpp names the PyTorch equivalent of every function. All tensors are float32, on a CPU, and
without gradients.
"""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Int8, UInt8
from torch import Tensor
from torch.nn import functional as F

from nmt.model.native.kernel_library import call, library


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
    weights = query.new_empty(len(query), keys.size(1))  # [N, S]
    call(
        "search_attention",
        *weights.shape,
        keys.size(2),
        query,
        query.stride(0),
        keys,
        mask,
        sentences,
        direction,
        False,
        weights,
    )
    return weights


def weighted_sum(
    weights: Float[Tensor, "N S"], values: Float[Tensor, "B S M"], sentences: Int[Tensor, " N"]
) -> Float[Tensor, "N M"]:
    """Returns the weighted sum of memory values for each hypothesis; `sentences` contains the
    sentence index of each hypothesis."""
    values = values.float().contiguous()
    sums = values.new_empty(len(weights), values.size(2))  # [N, M]
    call(
        "search_weighted_sum",
        *weights.shape,
        values.size(2),
        weights,
        values,
        sentences,
        sums,
        values.size(2),
    )
    return sums


def quantize(x: Float[Tensor, "N K"]) -> tuple[UInt8[Tensor, "N K"], Float[Tensor, " N"]]:
    """Quantises each row to unsigned 8-bit integers. Returns the quantised rows, and the largest
    absolute value of each row. 0 becomes 128; the largest absolute value becomes 128 ± 127."""
    low = torch.empty(x.shape, dtype=torch.uint8)  # [N, K]
    largest = x.new_empty(len(x))  # [N]
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
    y = torch.empty(x.shape, dtype=x.dtype)
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
    values = logits.new_empty(len(logits), count)  # [N, k]
    words = torch.empty(values.shape, dtype=torch.int64)  # [N, k]
    ends = logits.new_empty(len(logits))  # [N]
    call("search_best", *logits.shape, count, end, logits, values, words, ends)
    return values, words, ends


FLOAT32, BFLOAT16, INT8 = range(3)
"""Kinds of matrix multiplications, as numbered in beam_search.cpp."""


class MatrixProduct(NamedTuple):
    """Matrix multiplication that the C++ extension uses in generation.

    kind: data type of the weights: FLOAT32, BFLOAT16 or INT8
    address: address of the function in PyTorch's library for bfloat16; 0 for float32 and int8
        weights, which the C++ extension multiplies itself
    """

    kind: int
    address: int

    def layout(self, weight: Float[Tensor, "M K"]) -> Tensor:
        """Converts a weight to the dtype and memory format that this matrix multiplication
        reads."""
        if self.kind == INT8:
            return pack_int8(weight)
        return pack_float32(weight) if self.kind == FLOAT32 else weight.bfloat16()

    def __call__(
        self, x: Float[Tensor, "*rows K"], layout: Tensor, bias: Float[Tensor, " M"]
    ) -> Float[Tensor, "*rows M"]:
        """Returns x Wᵀ + b in the C++ extension, for kinds FLOAT32 and INT8. `layout` is the result
        of the method `layout` for the weight W."""
        name = "int8_product" if self.kind == INT8 else "float32_product"
        y = x.new_empty(*x.shape[:-1], len(bias))
        sizes = (x.numel() // x.size(-1), x.size(-1), len(bias))
        call(name, *sizes, x.contiguous(), layout, bias.contiguous(), y)
        return y


@functools.cache
def matrix_product(precision: str) -> MatrixProduct | None:
    """Returns a fast matrix multiplication on this processor; None if there is none.

    precision: float32, bfloat16 or int8. On processors with AMX, int8 multiplies in bfloat16,
        because PyTorch's library exports no function for 8-bit integers
    """
    if library() is None:
        return None
    if precision == "float32":
        return MatrixProduct(FLOAT32, 0)
    has_amx = torch.cpu.get_capabilities().get("amx_bf16")
    if not has_amx:
        return MatrixProduct(INT8, 0) if precision == "int8" and has_int8_product() else None
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        function = ctypes.CDLL(str(path)).gemm_bf16bf16f32_
    except (OSError, AttributeError):
        return None
    address = ctypes.cast(function, ctypes.c_void_p).value
    return MatrixProduct(BFLOAT16, address) if address else None


def has_int8_product() -> bool:
    """Returns whether the C++ extension was compiled with the VNNI instructions of AVX-512."""
    loaded = library()
    return loaded is not None and bool(loaded.has_int8_product())


def quantize_weight(
    weight: Float[Tensor, "M K"],
) -> tuple[Int8[Tensor, "M K"], Float[Tensor, " M"]]:
    """Quantises each row of a weight to the integers -127 to 127. Returns the integers, and the
    scale of each row, by which the integers are multiplied."""
    # [M]; the lower bound avoids a division by 0
    scales = weight.abs().amax(1).float().clamp(min=1e-12) / 127
    return (weight / scales.unsqueeze(1)).round().to(torch.int8), scales


def pack_int8(weight: Float[Tensor, "M K"]) -> UInt8[Tensor, " bytes"]:
    """Quantises the rows of a weight to 8 bits, and returns them in the layout of
    int8_product.cpp."""
    whole, scales = quantize_weight(weight)  # [M, K], [M]
    rows = -len(whole) % 64
    whole = F.pad(whole, (0, -whole.size(1) % 4, 0, rows))  # [M', K']
    offsets = 128 * whole.sum(1, dtype=torch.int32)  # [M']
    groups = whole.view(len(whole) // 64, 64, -1, 4).transpose(1, 2)  # [M'/64, K'/4, 64, 4]
    parts = (F.pad(scales / 127, (0, rows)), offsets, groups.contiguous())
    return torch.cat([part.view(torch.uint8).flatten() for part in parts])


def pack_float32(weight: Float[Tensor, "M K"]) -> Float[Tensor, "groups K G"]:
    """Returns a weight in the layout of float32_product.cpp: groups of G rows, transposed."""
    loaded = library()
    assert loaded is not None
    size = loaded.float32_group()
    rows = F.pad(weight.float(), (0, 0, 0, -len(weight) % size))  # [M', K]
    return rows.view(-1, size, weight.size(1)).transpose(1, 2).contiguous()


def read_both_directions(
    product: MatrixProduct,
    x: Float[Tensor, "B T I"],
    lengths: Int[Tensor, " B"],
    weights: Sequence[Tensor],
) -> tuple[Float[Tensor, "B T H"], Float[Tensor, "B H"]]:
    """Runs a bidirectional layer of gated recurrent units (GRU); outputs are 0 at padding.

    product: `MatrixProduct` that computes the matrix multiplications
    x: input vectors
    lengths: number of tokens of each sentence
    weights: W_ih, b_ih, W_hh and b_hh, first of the forward and then of the backward direction;
        matrices are converted by `MatrixProduct.layout`

    Returns the outputs and the last states.
    """
    units = weights[3].numel() // 3
    outputs = x.new_zeros(*x.shape[:2], 2 * units)  # [B, T, H], 0 at padding
    last = x.new_empty(len(x), 2 * units)  # [B, H]
    call(
        "read_both_directions",
        product.address,
        product.kind,
        *x.shape,
        units,
        x.contiguous(),
        lengths,
        *weights,
        outputs,
        last,
    )
    return outputs, last
