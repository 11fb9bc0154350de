"""Autograd functions of the native kernels; each names its counterpart in PyTorch."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from nmt.model.native.kernel_library import TYPES, call

PARTS = 16
"""Parts of the rows of logits, which threads share; constant, so that sums do not depend on their number."""
LOGITS = 2**25
"""Largest number of logits held for the backward pass; 64 MB in bfloat16."""


class NativeGRUStep(Function):
    """h' [… Q] from the gates a [… 3Q] of the input, u [… 3Q] of the state, and h [… Q]."""

    @staticmethod
    def forward(
        ctx: Any, a: Float[Tensor, "*rows G"], u: Float[Tensor, "*rows G"], h: Tensor
    ) -> Float[Tensor, "*rows Q"]:
        a = a if a.stride(-1) == 1 and a.dim() <= 3 else a.contiguous()
        u = u.to(a.dtype)
        u = u if u.stride(-1) == 1 and u.dim() == 2 else u.contiguous()
        h = h.float().contiguous()
        strides = a.stride(0) if a.dim() == 3 else 0, a.stride(-2), u.stride(-2)
        ctx.layout = h.numel() // h.size(-1), h.size(-1), a.size(-2), *strides
        ctx.save_for_backward(a, u, h)
        next_h = torch.empty_like(h)
        call(f"gru_{TYPES[a.dtype]}", *ctx.layout, a, u, h, next_h)
        return next_h

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        gradients = tuple(torch.empty(x.shape, dtype=x.dtype) for x in inputs)
        kernel = f"gru_backward_{TYPES[inputs[0].dtype]}"
        call(kernel, *ctx.layout, *inputs, d.contiguous(), *gradients)
        return gradients


class NativeCrossEntropy(Function):
    """Smoothed loss and −Σ log p_y, summed over n tokens.

    x: features [n D]
    weight, bias: of the output layer [V D] and [V]
    targets: right words [n]
    smoothing: label smoothing
    dtype: type of the products
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        low_weight = weight.to(dtype)
        low = x.to(dtype)
        logits = low @ low_weight.t()  # [n, V], without bias
        losses = torch.empty(2, len(x))
        d_bias = torch.zeros(PARTS, len(bias))
        call(
            f"cross_entropy_{TYPES[dtype]}",
            *(len(x), len(bias), PARTS, float(smoothing)),
            *(logits, bias, targets.contiguous(), *losses, d_bias),
        )
        # The kernel has written ∂L/∂logits over them.
        ctx.save_for_backward(logits, low, low_weight, d_bias.sum(0))
        total, nll = losses.sum(1)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, d: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_logits, low, low_weight, d_bias = ctx.saved_tensors
        low = (low * d.to(low.dtype)).t().contiguous()  # [D, n]
        # oneDNN multiplies bfloat16 twice as fast if the smaller operand is the transposed one.
        dw = (low @ d_logits).t() if low.dtype == torch.bfloat16 else d_logits.t() @ low.t()
        dw = dw.to(torch.float32, memory_format=torch.contiguous_format)  # [V, D]
        return (d_logits @ low_weight).float() * d, dw, d_bias * d, None, None, None
