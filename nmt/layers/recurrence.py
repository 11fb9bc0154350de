"""Recurrent layers, and how to train them fast.

A recurrence spends its time on products of a small state with one fixed matrix, step after step:

    y_t = x_t W,        t = 1 … T.

The forward pass cannot avoid T small products. The backward pass has twice as many, but T of them can be joined into
one. With d_t = ∂L/∂y_t,

    ∂L/∂x_t = d_t Wᵀ            is needed at once, because x_t came from step t-1;
    ∂L/∂W   = Σ_t x_tᵀ d_t      is not needed inside the loop.

Stack the x_t and the d_t over time, and ∂L/∂W is *one* large product, [x_1; …; x_T]ᵀ [d_1; …; d_T], instead of T small
ones that each read and write all of ∂L/∂W. `Shared` does that for any loop written in plain PyTorch. W may be a weight
matrix [K M] shared by all rows, or a memory [B S M] shared by all queries of a sentence (then x_t are the weights of
attention).

The gated recurrent unit (Cho et al. 2014, in the variant of cuDNN and torch.nn.GRU: reset after the product), with
a = x W_ihᵀ + b_ih hoisted out of the loop and u = h W_hhᵀ + b_hh:

    r = σ(a_r + u_r)    z = σ(a_z + u_z)    n = tanh(a_n + r ∘ u_n)    h' = n + z ∘ (h − n)

and its gradient, with δ = ∂L/∂h':

    δ_h = δ ∘ z  (+ what comes back through u)
    δ_an = δ ∘ (1 − z) ∘ (1 − n²)                       δ_un = δ_an ∘ r
    δ_az = δ_uz = δ ∘ (h − n) ∘ z ∘ (1 − z)
    δ_ar = δ_ur = δ_an ∘ u_n ∘ r ∘ (1 − r)

The long short-term memory (Hochreiter & Schmidhuber 1997; forget gate of Gers et al. 2000) keeps a second state c:

    i, f, o = σ(·)    g = tanh(·)    c' = f ∘ c + i ∘ g    h' = o ∘ tanh(c')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.layers.packed import Block, join, linear, packed

Cell = tuple[Tensor, ...]
"""The state of one layer: (h,) for a GRU, (h, c) for an LSTM."""
CellName = Literal["gru", "lstm"]


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent. As 2σ(2x) − 1 on CPUs, where PyTorch's logistic runs four times faster than its tanh."""
    return torch.tanh(x) if x.is_cuda else torch.sigmoid(2 * x).mul(2).sub(1)


def full(x: Tensor) -> Tensor:
    """x as float32 if autocast made it bfloat16 or float16; float32 and float64 stay."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class _Gather(Function):
    """Identity on the operand. Its backward runs after the backward of all steps and computes the one large product."""

    @staticmethod
    def forward(ctx: Any, operand: Tensor, bias: Tensor | None, tape: list[tuple[Tensor, Tensor]]) -> Any:
        ctx.set_materialize_grads(False)
        ctx.tape, ctx.has_bias, ctx.transposed = tape, bias is not None, operand.stride(-1) != 1
        return operand.view_as(operand), None if bias is None else bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, *unused: None) -> tuple[Tensor | None, Tensor | None, None]:
        if not ctx.tape:
            return None, None, None
        x, d = (torch.cat(column, dim=-2) for column in zip(*ctx.tape, strict=True))
        ctx.tape.clear()
        d_bias = d.sum(-2, keepdim=d.dim() == 3) if ctx.has_bias else None
        if ctx.transposed:  # in the operand's memory layout, so that the gradient need not be transposed later
            return (d.transpose(-1, -2) @ x).transpose(-1, -2), d_bias, None
        return x.transpose(-1, -2) @ d, d_bias, None


def _multiply(x: Tensor, operand: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x @ operand
    return torch.addmm(bias, x, operand) if operand.dim() == 2 else torch.baddbmm(bias, x, operand)


class _Product(Function):
    """x @ operand + bias for one step; its backward leaves (x, d) on the tape for `_Gather`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operand: Tensor, bias: Tensor | None, tape: list[tuple[Tensor, Tensor]]) -> Tensor:
        x_low = x.to(operand.dtype)
        ctx.save_for_backward(x_low, operand)
        ctx.tape, ctx.dtype = tape, x.dtype
        return _multiply(x_low, operand, bias)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, operand = ctx.saved_tensors
        d = d.to(operand.dtype)
        ctx.tape.append((x, d))
        dx = (d @ operand.transpose(-1, -2)).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        return dx, None, None, None


class Shared:
    """An operand used at every step of a loop: `shared(x)` is x @ operand + bias; its gradient is one product.

    operand [K M] with x [N K], or operand [B S M] with x [B n S]; bias [M] or [B 1 M]. Under autocast the products run
    in autocast's type (the result too); the operand is converted once.
    """

    def __init__(self, operand: Tensor, bias: Tensor | None = None, low_precision: bool = True) -> None:
        device = operand.device.type
        if low_precision and torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            operand, bias = operand.to(dtype), None if bias is None else bias.to(dtype)
        self._tape: list[tuple[Tensor, Tensor]] = []
        self._operand, self._bias = operand, bias
        if torch.is_grad_enabled() and operand.requires_grad:
            self._operand, self._bias = _Gather.apply(operand, bias, self._tape)

    def __call__(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return _multiply(x.to(self._operand.dtype), self._operand, self._bias)
        return _Product.apply(x, self._operand, self._bias, self._tape)


def fuse(owner: nn.Module, name: str, *blocks: Block) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Several products with the same x, as one; `name` distinguishes the owner's products if they are kept packed."""
    product = packed(owner, name, *blocks)
    if product is not None:
        return product
    weight, bias = blocks[0] if len(blocks) == 1 else join(*blocks)
    shared = Shared(weight.t(), bias)
    return lambda x: shared(x).split([len(weight) for weight, _ in blocks], -1)


def _gru_values(a: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """h'; r and z in one tensor; n; and u_n, the state's part of n before the reset."""
    size, u = h.size(-1), u.to(h.dtype)
    rz = torch.sigmoid(a[..., : 2 * size] + u[..., : 2 * size])
    r, z, u_n = rz[..., :size], rz[..., size:], u[..., 2 * size :]
    n = tanh(torch.addcmul(a[..., 2 * size :].to(h.dtype), r, u_n))
    return torch.lerp(n, h, z), rz, n, u_n


class _GRUPointwise(Function):
    """h' from a (gates of the input), u (gates of the state) and h; equations at the top of the file."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, u: Tensor, h: Tensor) -> Tensor:
        after, rz, n, u_n = _gru_values(a, u, h)
        ctx.save_for_backward(rz, n, u_n, h)
        ctx.types = a.dtype, u.dtype
        return after

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rz, n, u_n, h = ctx.saved_tensors
        a_type, u_type = ctx.types
        size = h.size(-1)
        r, z = rz[..., :size], rz[..., size:]
        d_h = d * z
        d_an = torch.ops.aten.tanh_backward(d - d_h, n)
        d_rz = torch.ops.aten.sigmoid_backward(torch.cat([d_an * u_n, d * (h - n)], -1), rz)
        d_a, d_u = torch.cat([d_rz, d_an], -1), torch.cat([d_rz, d_an * r], -1)
        return d_a.to(a_type), d_u.to(u_type), d_h


def gru(a: Tensor, u: Tensor, state: Cell) -> Cell:
    """One GRU step from the gates of the input a [… 3Q] and of the state u [… 3Q]; state (h [… Q],)."""
    if not torch.is_grad_enabled():
        return (_gru_values(a, u, state[0])[0],)
    return (_GRUPointwise.apply(a, u, state[0]),)


def lstm(a: Tensor, u: Tensor, state: Cell) -> Cell:
    """One LSTM step from the gates of the input a [… 4Q] and of the state u [… 4Q]; state (h [… Q], c [… Q])."""
    h, c = state
    size = h.size(-1)
    gates = a + u.to(h.dtype)
    i, f = torch.sigmoid(gates[..., : 2 * size]).chunk(2, -1)
    g, o = tanh(gates[..., 2 * size : 3 * size]), torch.sigmoid(gates[..., 3 * size :])
    c = torch.addcmul(i * g, f, c)
    return o * tanh(c), c


CELLS: dict[str, Callable[[Tensor, Tensor, Cell], Cell]] = {"gru": gru, "lstm": lstm}


class Recurrent(nn.Module):
    """One recurrent layer in one direction or two. The parameters live in a torch.nn.GRU or LSTM, which also runs the
    whole sequence on GPUs (cuDNN); on CPUs the loop below does this, both directions in the same step.

    Padding never enters the backward direction: each sentence is reversed on its own, so that in both directions the
    padding comes last, where nothing reads it.
    """

    def __init__(self, cell: CellName, input_size: int, hidden_size: int, directions: int = 1) -> None:
        super().__init__()
        self.size, self.directions = hidden_size, directions
        self.cell = CELLS[cell]
        self.state_parts = 2 if cell == "lstm" else 1
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.rnn = kind(input_size, hidden_size, batch_first=True, bidirectional=directions == 2)
        for name, parameter in self.rnn.named_parameters():
            gates = parameter.data.split(hidden_size)
            for gate in gates:
                if name.startswith("weight_hh"):
                    nn.init.orthogonal_(gate)
                elif name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(gate)
                else:
                    nn.init.zeros_(gate)
            if cell == "lstm" and name.startswith("bias_ih"):
                nn.init.ones_(gates[1])  # remember by default (Jozefowicz et al. 2015)

    def block(self, name: str, columns: slice = slice(None), direction: int = 0) -> Block:
        """The weight and bias of the inputs ("ih", some columns of it if asked) or of the state ("hh")."""
        suffix = f"{name}_l0{('', '_reverse')[direction]}"
        return getattr(self.rnn, f"weight_{suffix}")[:, columns], getattr(self.rnn, f"bias_{suffix}")

    def _both(self, name: str) -> tuple[Tensor, Tensor]:
        """The blocks of both directions: weights [2 K M], biases [2 1 M]."""
        (weight, bias), (weight_back, bias_back) = self.block(name), self.block(name, direction=1)
        return torch.stack([weight, weight_back]).transpose(1, 2), torch.stack([bias, bias_back]).unsqueeze(1)  # type: ignore[list-item]

    def forward(
        self,
        x: Float[Tensor, "B T I"],
        state: Cell | None = None,
        lengths: Int[Tensor, " B"] | None = None,
    ) -> tuple[Float[Tensor, "B T H"], Cell]:
        """Outputs [B T directions·size] and the state after each sentence's last token, parts [B directions·size].

        `lengths` (in tokens, ≥ 1) is needed for two directions; without it every position counts.
        """
        if x.is_cuda:
            return self._forward_cudnn(x, state, lengths)
        if self.directions == 1:
            a = linear(self, "input", x, self.block("ih"))
            u = fuse(self, "state", self.block("hh"))
            outputs, last = self._loop(a.transpose(0, 1), lambda h: u(h)[0], state or self._zeros(x))
            return outputs.transpose(0, 1), last
        assert lengths is not None, "two directions need the lengths"
        order = _reversal(lengths, x.size(1))
        both = torch.stack([x, _take(x, order)]).transpose(1, 2)  # [2 T B I]
        weight, bias = self._both("ih")
        a = torch.matmul(both.flatten(1, 2), weight) + bias
        zeros = tuple(torch.stack([z, z]) for z in self._zeros(x))
        outputs, _ = self._loop(a.view(2, *both.shape[1:3], -1).transpose(0, 1), Shared(*self._both("hh")), zeros)
        forward, backward = outputs[:, 0].transpose(0, 1), outputs[:, 1].transpose(0, 1)
        ends = (lengths - 1).view(-1, 1, 1).expand(-1, 1, self.size)
        final = torch.cat([side.gather(1, ends).squeeze(1) for side in (forward, backward)], -1)
        return torch.cat([forward, _take(backward, order)], -1), (final,)

    def _zeros(self, x: Tensor) -> Cell:
        weight: Tensor = self.rnn.weight_hh_l0  # type: ignore[assignment]
        return tuple(weight.new_zeros(x.size(0), self.size) for _ in range(self.state_parts))

    def _loop(self, a: Tensor, u: Callable[[Tensor], Tensor], state: Cell) -> tuple[Tensor, Cell]:
        """a: gates of the input, time first; u: gates of the state; outputs time first."""
        outputs = []
        for a_t in a.unbind(0):
            state = self.cell(a_t, u(state[0]), state)
            outputs.append(state[0])
        return torch.stack(outputs), state

    def _forward_cudnn(self, x: Tensor, state: Cell | None, lengths: Tensor | None) -> tuple[Tensor, Cell]:
        initial: Any = None
        if state is not None:
            initial = tuple(part.unsqueeze(0).contiguous() for part in state)
            initial = initial[0] if len(initial) == 1 else initial
        if lengths is None:
            outputs, final = self.rnn(x, initial)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            packed, final = self.rnn(packed, initial)
            outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        parts = final if isinstance(final, tuple) else (final,)
        return outputs, tuple(part.transpose(0, 1).flatten(1).to(outputs.dtype) for part in parts)


def _reversal(lengths: Tensor, size: int) -> Tensor:
    """[B T] positions that reverse each sentence and leave its padding where it is."""
    positions = torch.arange(size, device=lengths.device)
    reversed_ = lengths.unsqueeze(1) - 1 - positions
    return torch.where(reversed_ >= 0, reversed_, positions)


def _take(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.size(-1)))
