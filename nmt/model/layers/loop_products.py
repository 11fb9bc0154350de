"""Matrix multiplications inside a loop over time. The gradient of their shared matrix is computed
by a single multiplication.

A recurrent layer spends most of its time multiplying a small state by a constant matrix, step
after step:

    y_t = x_t W,        t = 1 … T.

The forward pass needs T small multiplications. The backward pass needs 2 T
multiplications, of which T can be joined into one. With d_t = ∂L/∂y_t for the loss L:

    ∂L/∂x_t = d_t Wᵀ            needed inside the loop, because x_t depends on step t-1
    ∂L/∂W   = Σ_t x_tᵀ d_t      not needed inside the loop

With the x_t and the d_t stacked over time, ∂L/∂W is one large multiplication, [x_1; …; x_T]ᵀ [d_1;
…; d_T], instead of T small multiplications that each read and write all of ∂L/∂W. `LoopProduct`
implements this method for any loop, in plain PyTorch. W is a weight matrix [K, M] shared by all
rows, or a memory [B, S, M] with one matrix per sentence; for a memory, x_t are attention weights.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from nmt.model.layers.packed import WeightBlock, join, packed

Tape = list[tuple[Tensor, Tensor]]
"""Type of tapes: list of pairs (input, output gradient), one for each step whose backward pass is
finished.
"""
Products = Callable[[Tensor], tuple[Tensor, ...]]
"""Type of functions that multiply an input by several matrices: input → tuple of results."""


class _CollectGradient(Function):
    """Autograd function: identity, applied to the matrix by which all steps of a loop multiply. Its
    backward pass runs after those of all steps, and computes the gradient of the matrix in one
    multiplication."""

    @staticmethod
    def forward(ctx: Any, operand: Tensor, bias: Tensor | None, tape: Tape) -> Any:
        ctx.set_materialize_grads(False)
        ctx.tape = tape
        ctx.has_bias = bias is not None
        ctx.transposed = operand.stride(-1) != 1
        return operand.view_as(operand), None if bias is None else bias.view_as(bias)

    @staticmethod
    def backward(
        ctx: Any, d_operand: Tensor | None, d_bias: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None]:
        # d_operand and d_bias are the gradients that steps with create_graph=True have computed.
        if not ctx.tape:
            return d_operand, d_bias, None
        # Rows of all steps, so that one matrix multiplication sums their gradients.
        x, d = (torch.cat(column, dim=-2) for column in zip(*ctx.tape, strict=True))
        ctx.tape.clear()
        if ctx.has_bias:
            d_bias = _sum(d.sum(-2, keepdim=d.dim() == 3), d_bias)
        if not ctx.needs_input_grad[0]:
            return None, d_bias, None
        if ctx.transposed:  # returns the gradient in the operand's memory layout
            product = (d.transpose(-1, -2) @ x).transpose(-1, -2)
        else:
            product = x.transpose(-1, -2) @ d
        return _sum(product, d_operand), d_bias, None


def _sum(gradient: Tensor, direct: Tensor | None) -> Tensor:
    return gradient if direct is None else gradient + direct


class _Step(Function):
    """Autograd function: computes x @ operand + bias for one step of a loop. Its backward pass
    appends (x, d) to the tape, for input x and output gradient d. With create_graph=True, it
    computes all gradients itself, so that second derivatives are correct."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operand: Tensor, bias: Tensor | None, tape: Tape) -> Tensor:
        x_low = x.to(operand.dtype)
        ctx.save_for_backward(x_low, operand)
        ctx.tape = tape
        ctx.dtype = x.dtype
        return _multiply(x_low, operand, bias)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, operand = ctx.saved_tensors
        d = d.to(operand.dtype)
        dx = (d @ operand.transpose(-1, -2)).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        if not torch.is_grad_enabled():
            ctx.tape.append((x, d))  # multiplied once, after all steps
            return dx, None, None, None
        if operand.dtype != ctx.dtype:  # the graph does not contain the converted x
            raise RuntimeError("second derivatives are not available under autocast")
        d_bias = d.sum(-2, keepdim=d.dim() == 3) if ctx.needs_input_grad[2] else None
        return dx, x.transpose(-1, -2) @ d, d_bias, None


def _multiply(x: Tensor, operand: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x @ operand
    return torch.addmm(bias, x, operand) if operand.dim() == 2 else torch.baddbmm(bias, x, operand)


class LoopProduct:
    """Matrix multiplication x @ operand + bias for every step of a loop. The gradient of the
    operand is computed in one multiplication.

    Under autocast, the operand is converted once, and the results have the autocast dtype.

    operand: matrix [K, M] for x [N, K], or [B, S, M] for x [B, n, S]
    bias: vector [M] or [B, 1, M]; None without a bias
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
        learns = operand.requires_grad or (bias is not None and bias.requires_grad)
        if torch.is_grad_enabled() and learns:
            self._operand, self._bias = _CollectGradient.apply(operand, bias, self._tape)

    def __call__(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return _multiply(x.to(self._operand.dtype), self._operand, self._bias)
        return _Step.apply(x, self._operand, self._bias, self._tape)


def fused_linear(owner: nn.Module, name: str, *blocks: WeightBlock) -> Products:
    """Returns a function for a loop over time that multiplies x by several weight blocks in one
    matrix multiplication.

    owner: module that owns the weights
    name: key of the packed weights, unique within `owner`
    blocks: weights [M, K] and biases [M]
    """
    packed_product = packed(owner, name, *blocks)
    if packed_product is not None:
        return packed_product
    weight, bias = blocks[0] if len(blocks) == 1 else join(*blocks)
    product = LoopProduct(weight.t(), bias)
    sizes = [block_weight.size(0) for block_weight, _ in blocks]
    return lambda x: product(x).split(sizes, -1)
