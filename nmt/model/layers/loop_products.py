"""Matrix products inside a loop over time, with one product for the gradient of their matrix.

A recurrence spends its time on products of a small state with one fixed matrix, step after step:

    y_t = x_t W,        t = 1 … T.

The forward pass cannot avoid T small products. The backward pass has twice as many, but T of them
can be joined into one. With d_t = ∂L/∂y_t,

    ∂L/∂x_t = d_t Wᵀ            is needed at once, because x_t came from step t-1;
    ∂L/∂W   = Σ_t x_tᵀ d_t      is not needed inside the loop.

Stack the x_t and the d_t over time, and ∂L/∂W is *one* large product, [x_1; …; x_T]ᵀ [d_1; …; d_T],
instead of T small ones that each read and write all of ∂L/∂W. `LoopProduct` does that for any loop
written in plain PyTorch. W may be a weight matrix [K M] of all rows, or a memory [B S M] of all
queries of a sentence (then x_t are attention weights).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from nmt.model.layers.packed import WeightBlock, join, packed

Tape = list[tuple[Tensor, Tensor]]
"""(x_t, d_t) of the steps whose backward pass is done."""
Products = Callable[[Tensor], tuple[Tensor, ...]]
"""x → its products with several matrices."""


class _CollectGradient(Function):
    """Identity on the operand. Its backward runs after the backward of all steps and computes the
    one large product."""

    @staticmethod
    def forward(ctx: Any, operand: Tensor, bias: Tensor | None, tape: Tape) -> Any:
        ctx.set_materialize_grads(False)
        ctx.tape = tape
        ctx.has_bias = bias is not None
        ctx.transposed = operand.stride(-1) != 1
        return operand.view_as(operand), None if bias is None else bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, *unused: None) -> tuple[Tensor | None, Tensor | None, None]:
        if not ctx.tape:
            return None, None, None
        x, d = (torch.cat(column, dim=-2) for column in zip(*ctx.tape, strict=True))
        ctx.tape.clear()
        d_bias = d.sum(-2, keepdim=d.dim() == 3) if ctx.has_bias else None
        if ctx.transposed:  # the operand's memory layout: the gradient need not be transposed later
            return (d.transpose(-1, -2) @ x).transpose(-1, -2), d_bias, None
        return x.transpose(-1, -2) @ d, d_bias, None


class _Step(Function):
    """x @ operand + bias of one step; its backward leaves (x, d) on the tape for
    `_CollectGradient`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operand: Tensor, bias: Tensor | None, tape: Tape) -> Tensor:
        x_low = x.to(operand.dtype)
        ctx.save_for_backward(x_low, operand)
        ctx.tape = tape
        ctx.dtype = x.dtype
        return _multiply(x_low, operand, bias)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, operand = ctx.saved_tensors
        d = d.to(operand.dtype)
        ctx.tape.append((x, d))
        dx = (d @ operand.transpose(-1, -2)).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        return dx, None, None, None


def _multiply(x: Tensor, operand: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x @ operand
    return torch.addmm(bias, x, operand) if operand.dim() == 2 else torch.baddbmm(bias, x, operand)


class LoopProduct:
    """x @ operand + bias for the x of every step of a loop; the gradient of the operand is one
    product.

    Under autocast the products and their results have autocast's type; the operand is converted
    once.

    operand: [K M] for x [N K], or [B S M] for x [B n S]
    bias: [M] or [B 1 M]
    """

    def __init__(self, operand: Tensor, bias: Tensor | None = None) -> None:
        device = operand.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            operand = operand.to(dtype)
            bias = None if bias is None else bias.to(dtype)
        self._tape: Tape = []
        self._operand = operand
        self._bias = bias
        if torch.is_grad_enabled() and operand.requires_grad:
            self._operand, self._bias = _CollectGradient.apply(operand, bias, self._tape)

    def __call__(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return _multiply(x.to(self._operand.dtype), self._operand, self._bias)
        return _Step.apply(x, self._operand, self._bias, self._tape)


def fused_linear(owner: nn.Module, name: str, *blocks: WeightBlock) -> Products:
    """Products of several weight blocks with the same x, as one product, for a loop.

    owner: module that the weights belong to
    name: distinguishes the owner's products, whose packed weights are kept
    blocks: weights [M K] and biases [M]
    """
    packed_product = packed(owner, name, *blocks)
    if packed_product is not None:
        return packed_product
    weight, bias = blocks[0] if len(blocks) == 1 else join(*blocks)
    product = LoopProduct(weight.t(), bias)
    sizes = [block_weight.size(0) for block_weight, _ in blocks]
    return lambda x: product(x).split(sizes, -1)
