"""Autograd functions of the C++ extension.

A decoder that attends within its recurrence reads the same memory at each of T steps. The backward
pass of each step adds its contribution to the gradient of the keys in place. The gradient of the
values is one matrix multiplication for all steps, as in layers/loop_products.py.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from nmt.model.native.kernel_library import TYPES, call

Form = Literal["additive", "product"]
"""Type of score equations in attention.cpp: additive, or a dot product."""
PARTS = 16
"""Number of chunks into which rows of logits are divided among threads. The number is constant, so
that rounding does not depend on the number of threads."""
LOGITS = 2**25
"""Maximum number of logits stored for the backward pass; 64 MB in bfloat16."""


class NativeGRUStep(Function):
    """Autograd function: computes the next state [… Q] of a gated recurrent unit from the input
    gates [… 3Q], the state gates [… 3Q] and the state [… Q]."""

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
        next_h = torch.empty_like(h)  # [*rows, Q]
        call(f"gru_{TYPES[a.dtype]}", *ctx.layout, a, u, h, next_h)
        return next_h

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        gradients = tuple(torch.empty(x.shape, dtype=x.dtype) for x in inputs)  # for a, u and h
        kernel = f"gru_backward_{TYPES[inputs[0].dtype]}"
        call(kernel, *ctx.layout, *inputs, d.contiguous(), *gradients)
        return gradients


class NativeMemory:
    """Encoder memory of B sentences in the form that the C++ extension reads.

    form: equation of the attention score
    keys: annotations projected for the comparison with queries
    values: annotations projected for the weighted sum
    mask: True for source positions that are not padding
    direction: vector v of additive scores vᵀ tanh(…); None for dot products
    dtype: data type of the computation
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
        v = keys.new_zeros(keys.size(2)) if direction is None else direction  # [K]
        self._steps = _Steps(form, mask.contiguous(), [])
        self._tensors = _Collect.apply(keys, values, v, self._steps, dtype)

    def attend(
        self, query: Float[Tensor, "N T K"]
    ) -> tuple[Float[Tensor, "N T S"], Float[Tensor, "N T M"]]:
        """Returns the attention weights and contexts of N · T queries, in the order of the queries.
        All sentences have equally many queries."""
        return _Attend.apply(query, *self._tensors, self._steps)


@dataclass
class _Steps:
    """Constants shared by all decoder steps, and gradient sums over the steps whose backward pass
    is done.

    form: equation of the attention score
    mask: True for source positions that are not padding
    tape: weights [B, n, S] and context gradients ∂L/∂c [B, n, M] of each step
    sums: gradients of the keys [B, S, K], and of the vector v of additive scores for each sentence
        [B, K]
    """

    form: Form
    mask: Tensor
    tape: list[tuple[Tensor, ...]]
    sums: tuple[Tensor, ...] = ()


class _Collect(Function):
    """Autograd function: converts keys, values and direction to the dtype of the extension. Its
    backward pass runs after the backward passes of all attention steps and returns the summed
    gradients."""

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
    """Autograd function: computes attention weights and contexts. Its backward pass adds the
    gradients of keys, values and direction to the sums over all steps."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, direction: Tensor, steps: _Steps
    ) -> tuple[Tensor, Tensor]:
        flat = query.flatten(0, 1)  # [N·T, K]
        flat = flat if flat.stride(1) == 1 else flat.contiguous()
        sentences, length, features = values.shape
        queries = len(flat) // sentences
        sizes = sentences, queries, length, flat.size(1), features, flat.stride(0)
        ctx.layout = steps.form == "additive", *sizes
        ctx.variant = TYPES[keys.dtype] if query.dtype == keys.dtype else "mixed"
        ctx.steps = steps
        weights = torch.empty(*query.shape[:2], length)  # [N, T, S]
        context = values.new_empty(*query.shape[:2], features)  # [N, T, M]
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
        d_query = torch.empty(query.shape, dtype=query.dtype)  # [N·T, K]
        gradients = d_weights.contiguous(), d_context, d_query, *steps.sums
        call(f"attend_backward_{ctx.variant}", *ctx.layout, *inputs, *gradients)
        by_sentence = (x.view(len(keys), -1, x.size(2)) for x in (weights, d_context))
        steps.tape.append(tuple(by_sentence))
        return d_query.view(*weights.shape[:2], -1), None, None, None, None


class NativeCrossEntropy(Function):
    """Autograd function: computes the smoothed loss and the negative log-likelihood, each summed
    over n tokens.

    x: input features of the output layer [n, D]
    weight, bias: parameters of the output layer, [V, D] and [V]
    targets: gold tokens [n]
    smoothing: label smoothing, 0 to 1
    agreement: weight of the divergence between rows 2i and 2i + 1; 0 if rows are not pairs
    dtype: data type of the matrix multiplications
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
        low_weight = weight.to(dtype)  # [V, D]
        low = x.to(dtype)  # [n, D]
        logits = low @ low_weight.t()  # [n, V], without bias
        losses = torch.empty(2, len(x))  # smoothed loss and −log p_y, [2, n]
        d_bias = torch.zeros(PARTS, len(bias))  # [PARTS, V]
        call(
            f"cross_entropy_{TYPES[dtype]}",
            *(len(x), len(bias), PARTS, float(smoothing), float(agreement)),
            *(logits, bias, targets.contiguous(), *losses, d_bias),
        )
        # The C++ function has overwritten the logits with ∂L/∂logits.
        ctx.save_for_backward(logits, low, low_weight, d_bias.sum(0))
        total, nll = losses.sum(1)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, d: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_logits, low, low_weight, d_bias = ctx.saved_tensors
        low = (low * d.to(low.dtype)).t().contiguous()  # [D, n]
        # In bfloat16, oneDNN is twice as fast if the smaller operand is transposed.
        dw = (low @ d_logits).t() if low.dtype == torch.bfloat16 else d_logits.t() @ low.t()
        dw = dw.to(torch.float32, memory_format=torch.contiguous_format)  # [V, D]
        return (d_logits @ low_weight).float() * d, dw, d_bias * d, None, None, None, None
