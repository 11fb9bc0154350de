"""Autograd functions of the C++ extension.

A decoder that attends within its recurrence reads the same memory at each of T steps. The backward
pass of each step adds its contribution to the gradient of the keys in place. The gradient of the
values is computed by one matrix multiplication for all steps.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd import Function

from nmt.model.native.kernel_library import TYPES, call, first_derivatives

Form = Literal["additive", "product"]
"""Type of score equations in attention.cpp: additive, or a dot product."""
PARTS = 16
"""Number of chunks into which the rows of logits are split; the threads share the chunks. The
number is constant, so that rounding does not depend on the number of threads."""
LARGEST_KEY = 34.0
"""Maximum absolute value of the keys of additive scores for which the extension is used.

The extension computes tanh(q + k / 2) of a query q and a key k from the product exp(2 q) exp(k),
which could overflow or lose precision.
"""
LOGITS = 2**25
"""Maximum number of logits stored for the backward pass; 64 MB in bfloat16."""


class NativeGRUStep(Function):
    """Autograd function: computes the next state [… Q] of a gated recurrent unit from the input
    and state pre-activations of its gates [… 3Q] and from the state [… Q]."""

    @staticmethod
    def forward(
        ctx: Any, a: Float[Tensor, "*rows GQ"], u: Float[Tensor, "*rows GQ"], h: Tensor
    ) -> Float[Tensor, "*rows Q"]:
        h = h.float().contiguous()
        u = u.to(a.dtype)
        if a.dim() > 2:  # a search has one dimension of rows
            a, u = (x.flatten(0, -2) for x in (a, u))  # [rows, 3·Q]
        a, u = (x if x.stride(-1) == 1 else x.contiguous() for x in (a, u))
        rows, size = len(a), h.size(-1)
        # One direction, one step; no direction reads in another order.
        ctx.layout = (1, rows, 1, size, 0, a.stride(0), u.stride(0), 0, 0, None)
        ctx.save_for_backward(a, u, h)
        next_h = torch.empty_like(h)  # [*rows, Q]
        call(f"gru_{TYPES[a.dtype]}", *ctx.layout, a, u, h, next_h, None, None)
        return next_h

    @staticmethod
    @first_derivatives
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, ...]:
        inputs = ctx.saved_tensors
        d_gates = tuple(torch.empty(x.shape, dtype=x.dtype) for x in inputs[:2])  # for a and u
        d_h = torch.empty_like(inputs[2])
        kernel = f"gru_backward_{TYPES[inputs[0].dtype]}"
        call(kernel, *ctx.layout, *inputs, d.contiguous(), None, *d_gates, d_h)
        return *(x.view(*d.shape[:-1], -1) for x in d_gates), d_h


class NativeGRU(Function):
    """Autograd function: runs a layer of gated recurrent units over B sentences, in D directions.
    Returns the states [B, T, D·Q] after each position.

    a: input pre-activations of the gates [B, T, D·3Q], whose dtype is that of the computation
    h: initial state [D, B, Q]
    order: positions in the order of the second direction [B, T]; None with one direction
    parameters: weight W_hh [3Q, Q] and bias b_hh [3Q] of each direction
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, h: Tensor, order: Tensor | None, *parameters: Tensor
    ) -> Float[Tensor, "B T H"]:
        a = a.contiguous()
        steps = a.size(1)
        size = h.size(-1)
        weights = [weight.to(a.dtype) for weight in parameters[::2]]
        biases = [bias.to(a.dtype) for bias in parameters[1::2]]
        shape = (len(h), steps + 1, *h.shape[1:])
        states = torch.empty(shape, dtype=torch.float32)  # [D, T + 1, B, Q]
        states[:, 0] = h
        # The states in the dtype of the matrix multiplications.
        low = states if a.dtype == states.dtype else states.to(a.dtype)
        u = a.new_empty(len(h), steps, h.size(1), 3 * size)  # [D, T, B, 3·Q]
        outputs = states.new_empty(*a.shape[:2], len(h) * size)
        ctx.sizes = len(h), h.size(1), steps, size
        ctx.layout = (a.stride(0), 3 * size, u.stride(0), states.stride(0), order)
        for t in range(steps):
            for d, weight in enumerate(weights):
                torch.addmm(biases[d], low[d, t], weight.t(), out=u[d, t])
            after = (states[:, t + 1], None if low is states else low[:, t + 1], outputs)
            inputs = (a, u[:, t], states[:, t])
            call(f"gru_{TYPES[a.dtype]}", *ctx.sizes, t, *ctx.layout, *inputs, *after)
        ctx.save_for_backward(a, u, states, low, *weights)
        return outputs

    @staticmethod
    @first_derivatives
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:
        a, u = ctx.saved_tensors[:2]
        states, low = ctx.saved_tensors[2:4]
        weights = ctx.saved_tensors[4:]
        steps = u.size(1)
        d = d.contiguous()
        da = torch.empty_like(a)
        du = torch.empty_like(u)
        dh = torch.empty_like(states[:, 0])
        product = torch.empty_like(dh, dtype=a.dtype)  # gradient through the state gates
        for t in reversed(range(steps)):
            inputs = (a, u[:, t], states[:, t], d, None if t == steps - 1 else product)
            kernel = f"gru_backward_{TYPES[a.dtype]}"
            call(kernel, *ctx.sizes, t, *ctx.layout, *inputs, da, du[:, t], dh)
            for direction, weight in enumerate(weights):
                torch.mm(du[direction, t], weight, out=product[direction])
        gradients = []
        for d_gates, state in zip(du, low, strict=True):  # one multiplication for all steps
            gates = d_gates.flatten(0, 1)  # [T·B, 3·Q]
            gradients.append((gates.t() @ state[:-1].flatten(0, 1)).float())
            gradients.append(gates.sum(0).float())
        return da, dh + product, None, *gradients


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
        if direction is None:
            direction = keys.new_zeros(keys.size(2))  # [K]
        self._steps = _Steps(form, mask.contiguous(), [])
        self._tensors = _Collect.apply(keys, values, direction, self._steps, dtype)

    def attend(
        self, query: Float[Tensor, "N T K"]
    ) -> tuple[Float[Tensor, "N T S"], Float[Tensor, "N T M"]]:
        """Returns the attention weights and contexts of N · T queries, in the order of the queries.
        All sentences have the same number of queries."""
        return _Attend.apply(query, *self._tensors, self._steps)


@dataclass
class _Steps:
    """Constants of attention that all decoder steps share, and gradient sums over the steps whose
    backward pass is finished.

    form: equation of the attention score
    mask: True for source positions that are not padding
    tape: weights [B, n, S] and context gradients ∂L/∂c [B, n, M] of each step
    sums: gradients of the keys [B, S, K], and, for each sentence, of the vector v of additive
        scores [B, K]
    """

    form: Form
    mask: Tensor
    tape: list[tuple[Tensor, ...]]
    sums: tuple[Tensor, ...] = ()


class _Collect(Function):
    """Autograd function: converts keys, values, and the vector v of additive scores (`direction`)
    to the form that the C++ extension reads. Its backward pass runs after the backward passes of
    all attention steps and returns the summed gradients."""

    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, values: Tensor, direction: Tensor, steps: _Steps, dtype: torch.dtype
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.steps = steps
        # Additive scores read the exponentials of the keys.
        keys = keys.float().exp() if steps.form == "additive" else keys.to(dtype)
        low = keys, values.to(dtype), direction.float()
        return tuple(x.contiguous().view_as(x) for x in low)

    @staticmethod
    @first_derivatives
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
    """Autograd function: computes attention weights and contexts of one decoder step.

    The backward pass sums the gradients of the keys and of the vector v of additive scores
    (`direction`) over the steps. The backward pass also stores the weights and the gradients of
    the contexts, from which the gradient of the values is computed after all steps.
    """

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, direction: Tensor, steps: _Steps
    ) -> tuple[Tensor, Tensor]:
        flat = query.flatten(0, 1)  # [N·T, K]
        flat = flat if flat.stride(1) == 1 else flat.contiguous()
        sentences, length, features = values.shape
        queries = len(flat) // sentences
        ctx.layout = (sentences, queries, length, flat.size(1), features, flat.stride(0))
        types = TYPES[values.dtype] if query.dtype == values.dtype else "mixed"
        ctx.variant = f"{steps.form}_{types}"
        ctx.steps = steps
        weights = torch.empty(*query.shape[:2], length, dtype=torch.float32)  # [N, T, S]
        context = values.new_empty(*query.shape[:2], features)  # [N, T, M]
        inputs = flat, keys, values, direction
        ctx.save_for_backward(*inputs, weights)
        call(f"attend_{ctx.variant}", *ctx.layout, *inputs, steps.mask, weights, context)
        return weights, context

    @staticmethod
    @first_derivatives
    def backward(ctx: Any, d_weights: Tensor, d_context: Tensor) -> tuple[Tensor | None, ...]:
        steps: _Steps = ctx.steps
        inputs = ctx.saved_tensors
        query, keys = inputs[:2]
        weights = inputs[-1]
        if not steps.tape:
            steps.sums = weights.new_zeros(keys.shape), weights.new_zeros(len(keys), keys.size(2))
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
        losses = torch.empty(2, len(x), dtype=torch.float32)  # smoothed loss and −log p_y, [2, n]
        d_bias = losses.new_zeros(PARTS, len(bias))  # [PARTS, V]
        call(
            f"cross_entropy_{TYPES[dtype]}",
            *(len(x), len(bias), PARTS, float(smoothing), float(agreement)),
            *(logits, bias.float(), targets.contiguous(), *losses, d_bias),
        )
        # The C++ function has overwritten the logits with ∂L/∂logits.
        ctx.save_for_backward(logits, low, low_weight, d_bias.sum(0))
        total, nll = losses.sum(1)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @first_derivatives
    def backward(ctx: Any, d: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_logits, low, low_weight, d_bias = ctx.saved_tensors
        low = low.t().contiguous()  # [D, n]
        # In bfloat16, oneDNN is twice as fast if the smaller operand is transposed.
        dw = (low @ d_logits).t() if low.dtype == torch.bfloat16 else d_logits.t() @ low.t()
        # The factor d is not rounded to the lower precision.
        dw = dw.to(torch.float32, memory_format=torch.contiguous_format).mul_(d)  # [V, D]
        return (d_logits @ low_weight).float() * d, dw, d_bias * d, None, None, None, None
