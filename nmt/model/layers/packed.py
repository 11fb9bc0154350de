"""Matrix products with fixed weights, for generation, where every step multiplies a few rows by the
same weights.

The blocks that multiply the same rows are joined and packed once, in the precision asked for, and
kept. Input and output rows are float32; the bias is added in float32.

    float32     the joined matrix as it is
    bfloat16    rows and matrix rounded to 8 bits of mantissa, products summed in float32
    int8        w ≈ s_w · [-127 … 127] with a scale for each output, made once. x ≈ s_x · [-127 …
                127] with a scale for each row, made at each call, so that a row does not depend on
                its neighbours. Products are summed exactly in 32 bits (Jacob et al. 2018, eq. 2-4).
                For CPUs with VNNI instructions
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
"""A weight [M K], as torch.nn.Linear keeps it, and its bias [M]."""


Kept = TypeVar("Kept")


class PackedWeights:
    """The packed weights of a model, made when first needed. The weights must not change while
    these are in use."""

    def __init__(self, precision: GenerationPrecision) -> None:
        self.precision = precision
        self.has_library = library() is not None
        self._made: dict[tuple[nn.Module, str], Any] = {}

    def get(self, owner: nn.Module, name: str, blocks: tuple[WeightBlock, ...]) -> Packed:
        return self.keep(owner, name, lambda: Packed(blocks, self.precision))

    def keep(self, owner: nn.Module, name: str, make: Callable[[], Kept]) -> Kept:
        """Something made from the owner's weights, when it is first needed."""
        if (owner, name) not in self._made:
            self._made[owner, name] = make()
        return cast(Kept, self._made[owner, name])


_current: contextvars.ContextVar[PackedWeights | None] = contextvars.ContextVar(
    "packs", default=None
)


@contextlib.contextmanager
def generating(packs: PackedWeights) -> Iterator[None]:
    """Inside this context, products without gradients use packed weights."""
    token = _current.set(packs)
    try:
        yield
    finally:
        _current.reset(token)


def current_weights() -> PackedWeights | None:
    """The packed weights in use; None outside `generating`."""
    return _current.get()


def native(x: Tensor) -> bool:
    """Whether native_decoding.py computes with this tensor: float32 on a CPU, inside `generating`,
    without gradients."""
    packs = _current.get()
    if packs is None or torch.is_grad_enabled() or x.dtype != torch.float32 or not x.is_cpu:
        return False
    return packs.has_library


def packed(owner: nn.Module, name: str, *blocks: WeightBlock) -> Packed | None:
    """The packed form of some of the owner's weights; None outside `generating`, and where
    gradients are required."""
    packs = _current.get()
    return None if packs is None or torch.is_grad_enabled() else packs.get(owner, name, blocks)


class Packed:
    """x [… K] → x Wᵀ + b for each of the blocks, as one product."""

    def __init__(self, blocks: tuple[WeightBlock, ...], precision: GenerationPrecision) -> None:
        self.sizes = [len(weight) for weight, _ in blocks]
        weight, bias = join(*blocks)
        self._multiply = _LAYOUTS[precision](weight.detach(), bias.detach())

    def __call__(self, x: Float[Tensor, "*rows K"]) -> tuple[Tensor, ...]:
        y = self._multiply(x)
        return (y,) if len(self.sizes) == 1 else y.split(self.sizes, -1)


def join(*blocks: WeightBlock) -> tuple[Tensor, Tensor]:
    """One weight and one bias for all blocks."""
    biases = [weight.new_zeros(len(weight)) if bias is None else bias for weight, bias in blocks]
    return torch.cat([weight for weight, _ in blocks]), torch.cat(biases)


def _float32(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: F.linear(x, weight, bias)


def _bfloat16(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    low = weight.bfloat16()
    return lambda x: F.linear(x.bfloat16(), low).float().add_(bias)


def _int8(weight: Tensor, bias: Tensor) -> Callable[[Tensor], Tensor]:
    # [outputs]; the bound is for weights that are all 0
    scales = weight.abs().amax(1).float().clamp(min=1e-12) / 127
    whole = (weight / scales.unsqueeze(1)).round().to(torch.int8)  # [outputs, K]
    prepacked = torch.ops.onednn.qlinear_prepack(whole, None)
    scales = scales / 127  # `multiply` scales each row to a largest number of 127
    zeros = torch.zeros_like(scales, dtype=torch.int32)
    rounding = torch.tensor(128.5)  # 128 + 0.5, because the conversion to uint8 truncates

    def product(low: Tensor) -> Tensor:
        return torch.ops.onednn.qlinear_pointwise(
            low, 1.0, 128, prepacked, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )

    def multiply(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.size(-1))  # [n, K]
        if native(rows):
            low, factors = native_decoding.quantize(rows)
            return native_decoding.rescale_(product(low), factors, bias).view(*x.shape[:-1], -1)
        largest = rows.abs().amax(-1, keepdim=True).clamp_(min=1e-12)  # [n, 1]
        low = torch.addcdiv(rounding, rows, largest, value=127).to(torch.uint8)
        y = product(low)  # [n, outputs]
        return torch.addcmul(bias, y, largest, out=y).view(*x.shape[:-1], -1)

    return multiply


_LAYOUTS = {"float32": _float32, "bfloat16": _bfloat16, "int8": _int8}


def int8_is_native() -> bool:
    """Whether this processor multiplies 8-bit numbers without overflow, and this torch lets it."""
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_vnni") or able.get("avx_vnni")) and hasattr(
        torch.ops.onednn, "qlinear_pointwise"
    )


def linear(
    owner: nn.Module, name: str, x: Float[Tensor, "*rows K"], block: WeightBlock
) -> Float[Tensor, "*rows M"]:
    """x Wᵀ + b, packed in generation; `name` distinguishes the owner's products."""
    product = packed(owner, name, block)
    return F.linear(x, *block) if product is None else product(x)[0]


class PackableLinear(nn.Linear):
    """torch.nn.Linear that multiplies by its packed weight in generation."""

    def forward(self, x: Float[Tensor, "*rows K"]) -> Float[Tensor, "*rows M"]:
        return linear(self, "", x, (self.weight, self.bias))
