"""Gated recurrent unit (Cho et al. 2014) in the variant of cuDNN and torch.nn.GRU, which applies
the reset gate after the matrix multiplication.

    r = σ(a_r + u_r)    z = σ(a_z + u_z)    n = tanh(a_n + r ∘ u_n)    h' = n + z ∘ (h − n)

x is the input, h the state before the step and h' the state after it. The input gates a = x W_ihᵀ
+ b_ih are computed before the loop over time; the state gates are u = h W_hhᵀ + b_hh. Dropout of
the update (Semeniuta et al. 2016, eq. 8-11) multiplies n by a mask.
"""

import torch
from torch import Tensor, nn

from nmt.model.layers.numeric import tanh
from nmt.model.layers.packed import current_weights, native
from nmt.model.layers.recurrence import CellState, Recurrent
from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import usable
from nmt.model.native.native_functions import NativeGRUStep


class GRU(Recurrent):
    """Recurrent layer of gated recurrent units (GRU); the state is (h,)."""

    gates = 3
    torch_layer = nn.GRU
    torch_function = staticmethod(torch.gru)

    def _forward_both(
        self, x: Tensor, lengths: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, CellState]:
        packs = current_weights()
        if (
            packs is None
            or mask is not None
            or not (native(x) and self.is_torch_layer)
            or native_decoding.matrix_product(packs.precision) is None
        ):
            return super()._forward_both(x, lengths, mask)
        dtype = torch.float32 if packs.precision == "float32" else torch.bfloat16
        weights = packs.keep(
            self,
            "both directions",
            lambda: [
                part.to(dtype) if part.dim() == 2 else part
                for direction in (0, 1)
                for name in ("ih", "hh")
                for part in self.weight_block(name, direction=direction)
                if part is not None
            ],
        )
        outputs, last = native_decoding.read_both_directions(packs.precision, x, lengths, weights)
        return outputs, (last,)

    def cell(
        self, a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None
    ) -> CellState:
        return gru(a, u, state, update_mask)


def gru(a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None) -> CellState:
    """Returns the state of a gated recurrent unit after one time step. The C++ extension computes
    it for supported devices and dtypes.

    a: input gates [… 3Q]
    u: state gates [… 3Q]
    state: state before the step, (h [… Q],)
    update_mask: dropout mask of the new state n [… Q]; None for no dropout
    """
    (h,) = state
    if update_mask is None and (torch.is_grad_enabled() or native(h)) and usable(a, u, h):
        return (NativeGRUStep.apply(a, u, h),)
    sizes = [2 * h.size(-1), h.size(-1)]
    a_rz, a_n = a.to(h.dtype).split(sizes, -1)  # [… 2Q], [… Q]
    u_rz, u_n = u.to(h.dtype).split(sizes, -1)
    r, z = torch.sigmoid(a_rz + u_rz).chunk(2, -1)  # [… Q], [… Q]
    n = tanh(torch.addcmul(a_n, r, u_n))  # [… Q]
    if update_mask is not None:
        n = n * update_mask
    return (torch.lerp(n, h, z),)  # h_t = (1 − z) n + z h
