"""Matrix multiplications with packed weights, for generation: each decoder step multiplies a few
rows by constant weights.

Weight blocks that multiply the same rows are concatenated, packed once in the requested precision,
and cached for all later steps. Input and output rows are float32; the bias is added in float32.

    float32     the concatenated matrix; the C++ extension reads it in groups of rows
    bfloat16    rows and matrix rounded to 8 significant bits, accumulation in float32
    int8        w ≈ s_w · [-127 … 127] with one scale s_w per output, computed once.
                x ≈ s_x · [-127 … 127] with one scale s_x per row, computed at each call, so
                that rows do not affect one another. Accumulation is exact in 32 bits
                (Jacob et al. 2018, eq. 2-4). Requires a CPU with VNNI instructions
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import library

GenerationPrecision = Literal["float32", "bfloat16", "int8"]
WeightBlock = tuple[Tensor, Tensor | None]
"""Type of weight blocks: a matrix [M, K] in the layout of torch.nn.Linear, and a bias [M] or
None."""


Kept = TypeVar("Kept")


class PackedWeights:
    """Cache of a model's packed weights, filled on first use. The model's weights must not change
    while the cache is in use.

    precision: precision of the matrix multiplications: float32, bfloat16 or int8
    """

    def __init__(self, precision: GenerationPrecision) -> None:
        self.precision = precision
        self.cached: dict[tuple[nn.Module, str], Any] = {}

    def keep(self, owner: nn.Module, name: str, make: Callable[[], Kept]) -> Kept:
        """Returns a cached object computed from the weights of the module `owner`. `make` creates
        the object on the first call. `name` is the object's key, unique within the module."""
        if (owner, name) not in self.cached:
            self.cached[owner, name] = make()
        return cast(Kept, self.cached[owner, name])


_current: contextvars.ContextVar[PackedWeights | None] = contextvars.ContextVar(
    "weights", default=None
)


@contextlib.contextmanager
def generating(weights: PackedWeights) -> Iterator[None]:
    """Context manager inside which linear layers use packed weights if gradients are disabled."""
    token = _current.set(weights)
    try:
        yield
    finally:
        _current.reset(token)


def current_weights() -> PackedWeights | None:
    """Returns the packed weights in use; None outside the context manager `generating`."""
    return _current.get()


def native(x: Tensor) -> bool:
    """Returns whether the C++ extension is used for a tensor: inside the context manager
    `generating`, with gradients disabled, for float32 tensors on a CPU."""
    is_generating = _current.get() is not None and not torch.is_grad_enabled()
    return is_generating and x.dtype == torch.float32 and x.is_cpu and library() is not None


def packed(owner: nn.Module, name: str, *blocks: WeightBlock) -> Packed | None:
    """Returns the packed form of a module's weight blocks; None outside the context manager
    `generating`, or if gradients are enabled. The blocks, which multiply the same input, are packed
    on the first call. `name` is the key of the packed weights and must be unique within the module
    `owner`."""
    weights = _current.get()
    if weights is None or torch.is_grad_enabled():
        return None
    return weights.keep(owner, name, lambda: Packed(blocks, weights.precision))


class Packed:
    """Fused linear layer over several weight blocks: x [… K] → x Wᵀ + b for each block, in one
    matrix multiplication."""

    def __init__(self, blocks: tuple[WeightBlock, ...], precision: GenerationPrecision) -> None:
        self.sizes = [len(weight) for weight, _ in blocks]
        weight, bias = (part.detach() for part in join(*blocks))
        native_product = _native_product(precision, weight, bias)
        self._multiply = native_product or _PRODUCTS[precision](weight, bias)

    def __call__(self, x: Float[Tensor, "*rows K"]) -> tuple[Tensor, ...]:
        y = self._multiply(x)
        return (y,) if len(self.sizes) == 1 else y.split(self.sizes, -1)


def join(*blocks: WeightBlock) -> tuple[Tensor, Tensor]:
    """Concatenates weight blocks into one weight and one bias; a missing bias is replaced by
    zeros."""
    biases = [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in blocks]
    return torch.cat([weight for weight, _ in blocks]), torch.cat(biases)  # [ΣM, K], [ΣM]


def _float32(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: F.linear(x, weight, bias)


def _bfloat16(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    low = weight.bfloat16()  # [outputs, K]
    return lambda x: F.linear(x.bfloat16(), low).float().add_(bias)


def _native_product(
    precision: GenerationPrecision, weight: Tensor, bias: Tensor
) -> Callable[[Tensor], Tensor] | None:
    """Returns the function x → x Wᵀ + b of the C++ extension; None if the extension has none for
    this precision, weight or processor."""
    product = native_decoding.matrix_product(precision)
    if product is None or product.kind == native_decoding.BFLOAT16 or not native(weight):
        return None
    layout = product.layout(weight)
    return lambda x: product(x.float(), layout, bias)


def _int8(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    whole, scales = native_decoding.quantize_weight(weight)  # [outputs, K], [outputs]
    prepacked = torch.ops.onednn.qlinear_prepack(whole, None)  # in the layout of the kernel
    scales = scales / 127  # `multiply` maps the largest absolute value of each row to 127
    zeros = torch.zeros_like(scales, dtype=torch.int32)
    rounding = torch.tensor(128.5)  # 128 + 0.5, because the conversion to uint8 truncates

    def product(low: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise(
            low, 1.0, 128, prepacked, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    def multiply(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.size(-1))  # [n, K]
        if native(rows):
            low, factors = native_decoding.quantize(rows)  # [n, K], [n]
            return native_decoding.rescale_(product(low), factors, bias).view(*x.shape[:-1], -1)
        largest = rows.abs().amax(-1, keepdim=True).clamp_(min=1e-12)  # [n, 1]
        low = torch.addcdiv(rounding, rows, largest, value=127).to(torch.uint8)  # [n, K]
        y = product(low)  # [n, outputs]
        return torch.addcmul(bias, y, largest, out=y).view(*x.shape[:-1], -1)

    return multiply


_PRODUCTS = {"float32": _float32, "bfloat16": _bfloat16, "int8": _int8}
"""Functions of a weight and a bias that return x → x Wᵀ + b, computed by PyTorch, by precision."""


def int8_is_native() -> bool:
    """Returns whether the processor has VNNI instructions, which multiply 8-bit integers without
    overflow, and this PyTorch version exposes the int8 kernel."""
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_vnni") or able.get("avx_vnni")) and hasattr(
        torch.ops.onednn, "qlinear_pointwise"
    )


def linear(
    owner: nn.Module, name: str, x: Float[Tensor, "*rows K"], block: WeightBlock
) -> Float[Tensor, "*rows M"]:
    """Returns x Wᵀ + b for a weight block (W, b), computed with packed weights during generation.
    `name` is the key of the packed weights and must be unique within the module `owner`."""
    product = packed(owner, name, block)
    return F.linear(x, *block) if product is None else product(x)[0]


class PackableLinear(nn.Linear):
    """torch.nn.Linear that uses packed weights during generation."""

    def forward(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows M"]:
        return linear(self, "", x, (self.weight, self.bias))
