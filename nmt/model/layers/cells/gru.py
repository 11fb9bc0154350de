"""The gated recurrent unit (Cho et al. 2014), in the variant of cuDNN and torch.nn.GRU: reset after the product.

With a = x W_ihᵀ + b_ih, which is computed outside of the loop, and u = h W_hhᵀ + b_hh:

    r = σ(a_r + u_r)    z = σ(a_z + u_z)    n = tanh(a_n + r ∘ u_n)    h' = n + z ∘ (h − n)

Its gradient, with δ = ∂L/∂h':

    δ_h = δ ∘ z  (+ what comes back through u)
    δ_an = δ ∘ (1 − z) ∘ (1 − n²)                       δ_un = δ_an ∘ r
    δ_az = δ_uz = δ ∘ (h − n) ∘ z ∘ (1 − z)
    δ_ar = δ_ur = δ_an ∘ u_n ∘ r ∘ (1 − r)

Dropout of the update (Semeniuta et al. 2016, eq. 8-11) scales n by a mask.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from nmt.model.layers.numeric import tanh
from nmt.model.layers.recurrence import CellState, Recurrent


class GRU(Recurrent):
    """A layer of gated recurrent units; the state is (h,)."""

    gates = 3
    torch_layer = nn.GRU
    torch_function = staticmethod(torch.gru)

    def cell(
        self, a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None
    ) -> CellState:
        return gru(a, u, state, update_mask)


def gru(a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None) -> CellState:
    """One step.

    a: gates of the input [… 3Q]
    u: gates of the state [… 3Q]
    state: (h [… Q],)
    update_mask: factors of n [… Q]
    """
    (h,) = state
    if update_mask is not None:
        size = h.size(-1)
        r, z = torch.sigmoid(a[..., : 2 * size] + u[..., : 2 * size].to(h.dtype)).chunk(2, -1)
        n = tanh(a[..., 2 * size :].to(h.dtype) + r * u[..., 2 * size :].to(h.dtype))  # [… Q]
        return (torch.lerp(n * update_mask, h, z),)
    if torch.is_grad_enabled():
        return (_GRUStep.apply(a, u, h),)
    return (_gru_values(a, u, h)[0],)


def _gru_values(a: Tensor, u: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """h' [… Q]; r and z in one tensor [… 2Q]; n [… Q]; u_n, the state's part of n before the reset [… Q]."""
    size = h.size(-1)
    u = u.to(h.dtype)
    rz = torch.sigmoid(a[..., : 2 * size] + u[..., : 2 * size])
    r = rz[..., :size]
    z = rz[..., size:]
    u_n = u[..., 2 * size :]
    n = tanh(torch.addcmul(a[..., 2 * size :].to(h.dtype), r, u_n))
    return torch.lerp(n, h, z), rz, n, u_n


class _GRUStep(Function):
    """h' from a, u and h, with the gradient of the equations above in a few element-wise operations."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, u: Tensor, h: Tensor) -> Tensor:
        next_h, rz, n, u_n = _gru_values(a, u, h)
        ctx.save_for_backward(rz, n, u_n, h)
        ctx.types = a.dtype, u.dtype
        return next_h

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rz, n, u_n, h = ctx.saved_tensors
        a_type, u_type = ctx.types
        size = h.size(-1)
        r = rz[..., :size]
        z = rz[..., size:]
        d_h = d * z
        d_an = torch.ops.aten.tanh_backward(d - d_h, n)
        d_rz = torch.ops.aten.sigmoid_backward(torch.cat([d_an * u_n, d * (h - n)], -1), rz)
        d_a = torch.cat([d_rz, d_an], -1)  # [… 3Q]
        d_u = torch.cat([d_rz, d_an * r], -1)  # [… 3Q]
        return d_a.to(a_type), d_u.to(u_type), d_h
