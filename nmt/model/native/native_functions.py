"""Autograd functions of the native kernels; each names its counterpart in PyTorch.

A decoder that recurs through attention attends T times to one memory. Each step's backward pass adds its
part to the gradient of the keys in place. The gradient of the values is one product for all steps, as in
layers/loop_products.py.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from nmt.model.native.kernel_library import TYPES, call

Form = Literal["additive", "product"]
"""Equation of the scores, see attention.cpp."""
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


class NativeMemory:
    """Memory of B sentences, as the kernels read it.

    form: equation of the scores
    keys: [B S K]
    values: [B S M]
    mask: True for real positions
    direction: v of additive scores [K]
    dtype: type to compute with
    """

    def __init__(
        self,
        form: Form,
        keys: Float[Tensor, "B S K"],
        values: Float[Tensor, "B S M"],
        mask: Bool[Tensor, "B S"],
        direction: Float[Tensor, " K"] | None,
        dtype: torch.dtype,
    ) -> None:
        v = keys.new_zeros(keys.size(2)) if direction is None else direction
        self._steps = _Steps(form, mask.contiguous(), [])
        self._tensors = _Collect.apply(keys, values, v, self._steps, dtype)

    def attend(
        self, query: Float[Tensor, "N T K"]
    ) -> tuple[Float[Tensor, "N T S"], Float[Tensor, "N T M"]]:
        """Weights and contexts of N · T queries, equally many for each sentence, in their order."""
        return _Attend.apply(query, *self._tensors, self._steps)


@dataclass
class _Steps:
    """Constants of all steps, and the sums of their gradients.

    tape: weights [B n S] and ∂L/∂c [B n M] of the steps whose backward pass is done
    sums: ∂L/∂k of these steps [B S K]; ∂L/∂v of these steps, sentence by sentence [B K]
    """

    form: Form
    mask: Tensor
    tape: list[tuple[Tensor, ...]]
    sums: tuple[Tensor, ...] = ()


class _Collect(Function):
    """Keys, values and direction in the type of the kernels. Its backward runs after that of all steps."""

    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, values: Tensor, direction: Tensor, steps: _Steps, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.steps = steps
        low = keys.to(dtype), values.to(dtype), direction.float()
        return tuple(x.contiguous().view_as(x) for x in low)

    @staticmethod
    def backward(ctx: Any, *unused: None) -> tuple[Tensor | None, ...]:
        steps: _Steps = ctx.steps
        if not steps.tape:
            return None, None, None, None, None
        weights, d_contexts = (torch.cat(column, 1) for column in zip(*steps.tape, strict=True))
        steps.tape.clear()
        d_keys, d_direction = steps.sums
        d_values = torch.bmm(weights.to(d_contexts.dtype).transpose(1, 2), d_contexts)  # [B, S, M]
        return d_keys, d_values.float(), d_direction.sum(0), None, None


class _Attend(Function):
    """Weights and contexts; its backward adds the gradients of keys, values and direction to those of other steps."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, direction: Tensor, steps: _Steps
    ) -> tuple[Tensor, Tensor]:
        flat = query.flatten(0, 1)
        flat = flat if flat.stride(1) == 1 else flat.contiguous()
        sentences, length, features = values.shape
        queries = len(flat) // sentences
        sizes = sentences, queries, length, flat.size(1), features, flat.stride(0)
        ctx.layout = steps.form == "additive", *sizes
        ctx.variant = TYPES[keys.dtype] if query.dtype == keys.dtype else "mixed"
        ctx.steps = steps
        weights = torch.empty(*query.shape[:2], length)
        context = values.new_empty(*query.shape[:2], features)
        inputs = flat, keys, values, direction
        ctx.save_for_backward(*inputs, weights)
        call(f"attend_{ctx.variant}", *ctx.layout, *inputs, steps.mask, weights, context)
        return weights, context

    @staticmethod
    def backward(ctx: Any, d_weights: Tensor, d_context: Tensor) -> tuple[Tensor | None, ...]:
        steps: _Steps = ctx.steps
        inputs = ctx.saved_tensors
        query, keys = inputs[:2]
        weights = inputs[-1]
        if not steps.tape:
            steps.sums = torch.zeros(keys.shape), torch.zeros(len(keys), keys.size(2))
        d_context = d_context.contiguous()
        d_query = torch.empty(query.shape, dtype=query.dtype)
        gradients = d_weights.contiguous(), d_context, d_query, *steps.sums
        call(f"attend_backward_{ctx.variant}", *ctx.layout, *inputs, *gradients)
        by_sentence = (x.view(len(keys), -1, x.size(2)) for x in (weights, d_context))
        steps.tape.append(tuple(by_sentence))
        return d_query.view(*weights.shape[:2], -1), None, None, None, None


class NativeCrossEntropy(Function):
    """Smoothed loss and −Σ log p_y, summed over n tokens.

    x: features [n D]
    weight, bias: parameters of the output layer, [V D] and [V]
    targets: right words [n]
    smoothing: label smoothing
    agreement: factor of the divergence between rows 2i and 2i + 1; 0: rows are no pairs
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
        agreement: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        low_weight = weight.to(dtype)
        low = x.to(dtype)
        logits = low @ low_weight.t()  # [n, V], without bias
        losses = torch.empty(2, len(x))
        d_bias = torch.zeros(PARTS, len(bias))
        call(
            f"cross_entropy_{TYPES[dtype]}",
            *(len(x), len(bias), PARTS, float(smoothing), float(agreement)),
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
        return (d_logits @ low_weight).float() * d, dw, d_bias * d, None, None, None, None
