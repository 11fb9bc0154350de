"""One step of a recurrence: the cells, from the gates of their input and of their state.

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

Dropout of the update (Semeniuta et al. 2016, eq. 8-11) scales n, or g, by a mask; what the cell carries over stays whole.

norm_gru and norm_lstm normalise every gate of a and of u over its units before they are added (Ba et al. 2016, eq. 20-22 and
supplementary material; gate by gate as in Chen et al. 2018, RNMT+); an LSTM also normalises c' before its tanh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

Cell = tuple[Tensor, ...]
"""The state of one layer: (h,) for a GRU, (h, c) for an LSTM."""
CellName = Literal["gru", "lstm", "norm_gru", "norm_lstm"]


def state_parts(name: CellName) -> int:
    """How many tensors a state of these cells has."""
    return 2 if name.endswith("lstm") else 1


def tanh(x: Tensor) -> Tensor:
    """Hyperbolic tangent. As 2σ(2x) − 1 on CPUs, where PyTorch's logistic runs four times faster than its tanh."""
    return torch.tanh(x) if x.is_cuda else torch.sigmoid(2 * x).mul(2).sub(1)


def full(x: Tensor) -> Tensor:
    """x as float32 if autocast made it bfloat16 or float16; float32 and float64 stay."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


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


def gru(a: Tensor, u: Tensor, state: Cell, kept: Tensor | None = None) -> Cell:
    """One GRU step from the gates of the input a [… 3Q] and of the state u [… 3Q]; state (h [… Q],). `kept`: the mask of the
    update."""
    if kept is not None:
        (h,), size = state, state[0].size(-1)
        r, z = torch.sigmoid(a[..., : 2 * size] + u[..., : 2 * size].to(h.dtype)).chunk(2, -1)
        n = tanh(a[..., 2 * size :].to(h.dtype) + r * u[..., 2 * size :].to(h.dtype))
        return (torch.lerp(n * kept, h, z),)
    if not torch.is_grad_enabled():
        return (_gru_values(a, u, state[0])[0],)
    return (_GRUPointwise.apply(a, u, state[0]),)


def lstm(
    a: Tensor,
    u: Tensor,
    state: Cell,
    kept: Tensor | None = None,
    norm: Callable[[Tensor], Tensor] | None = None,
) -> Cell:
    """One LSTM step from the gates of the input a [… 4Q] and of the state u [… 4Q]; state (h [… Q], c [… Q]). `kept`: the
    mask of the update; `norm` acts on what h is made from."""
    h, c = state
    size = h.size(-1)
    gates = a + u.to(h.dtype)
    i, f = torch.sigmoid(gates[..., : 2 * size]).chunk(2, -1)
    g, o = tanh(gates[..., 2 * size : 3 * size]), torch.sigmoid(gates[..., 3 * size :])
    g = g if kept is None else g * kept
    c = torch.addcmul(i * g, f, c)
    return o * tanh(c if norm is None else norm(c)), c


DropoutOf = Literal["state", "update"]
"""What recurrent dropout drops: features of the state in the recurrent products, or of what updates the state."""
CELLS: dict[str, Callable[[Tensor, Tensor, Cell, Tensor | None], Cell]] = {"gru": gru, "lstm": lstm}


class GateNorm(nn.Module):
    """Layer normalisation of each of several gates on its own, with a gain and a bias for each unit: [… G·Q] → [… G·Q].
    With two directions, the rows are [… 2 B G·Q]."""

    def __init__(self, gates: int, size: int, directions: int = 1) -> None:
        super().__init__()
        self.gates, self.size = gates, size
        shape = (gates, size) if directions == 1 else (directions, 1, gates, size)
        self.gain, self.bias = nn.Parameter(torch.ones(shape)), nn.Parameter(torch.zeros(shape))

    def forward(self, x: Float[Tensor, "*rows G"]) -> Float[Tensor, "*rows G"]:
        normed = F.layer_norm(full(x).unflatten(-1, (self.gates, self.size)), (self.size,))
        return torch.addcmul(self.bias, normed, self.gain).flatten(-2)
