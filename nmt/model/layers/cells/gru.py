"""Gated recurrent unit (Cho et al. 2014) in the variant of cuDNN and torch.nn.GRU, which applies
the reset gate after the matrix multiplication.

    r = σ(a_r + u_r)    z = σ(a_z + u_z)    n = tanh(a_n + r ∘ u_n)    h' = n + z ∘ (h − n)

x is the input, h the state before the step and h' the state after it. The input pre-activations of
the gates, a = x W_ihᵀ + b_ih, are computed before the loop over time; the state pre-activations are
u = h W_hhᵀ + b_hh. Dropout of the update (Semeniuta et al. 2016, eq. 8-11) multiplies n by a mask.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.foundation.fusion import fused
from nmt.model.layers.numeric import tanh
from nmt.model.layers.packed import current_weights, join, native
from nmt.model.layers.recurrence import CellState, Recurrent, at_end, reversal
from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import usable
from nmt.model.native.native_functions import NativeGRU, NativeGRUStep


class GRU(Recurrent):
    """Recurrent layer of gated recurrent units (GRU); the state is (h,)."""

    gates = 3
    torch_layer = nn.GRU
    torch_function = staticmethod(torch.gru)

    def _forward_both(
        self, x: Tensor, lengths: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, CellState]:
        cache = current_weights()
        if cache is not None and mask is None and native(x) and self.is_torch_layer:
            product = native_decoding.matrix_product(cache.precision)
            if product is not None:
                weights = cache.keep(self, "both directions", lambda: self._laid_out(product))
                outputs, last = native_decoding.read_both_directions(product, x, lengths, weights)
                return outputs, (last,)
        if not self._is_native(x, mask):
            return super()._forward_both(x, lengths, mask)
        blocks = [self.weight_block("ih", direction=direction) for direction in (0, 1)]
        a = F.linear(x, *join(*blocks))  # [B, T, 2·G·Q]
        state_blocks = [*self.weight_block("hh"), *self.weight_block("hh", direction=1)]
        (zeros,) = self._zeros(x)
        order = reversal(lengths, x.size(1))
        outputs = NativeGRU.apply(a, torch.stack([zeros, zeros]), order, *state_blocks)
        first = outputs[:, 0, self.size :]  # [B, Q], where the backward direction ends
        return outputs, (torch.cat([at_end(outputs[..., : self.size], lengths), first], -1),)

    def _over_time(self, a: Tensor, state: CellState, mask: Tensor | None) -> Any:
        if a.size(1) == 1 or not self._is_native(a, mask):
            return super()._over_time(a, state, mask)
        outputs = NativeGRU.apply(a, state[0].unsqueeze(0), None, *self.weight_block("hh"))
        return outputs, (outputs[:, -1],)

    def _is_native(self, x: Tensor, mask: Tensor | None) -> bool:
        """Returns whether the C++ extension supports training of the layer.

        x: inputs of the layer
        mask: recurrent dropout mask; None without dropout
        """
        is_plain = mask is None and self.is_torch_layer
        return is_plain and torch.is_grad_enabled() and usable(x, self.weight_block("hh")[0])

    def _laid_out(self, product: native_decoding.MatrixProduct) -> list[Tensor]:
        """Returns the weights of both directions, in the dtype and memory format that a matrix
        multiplication of the C++ extension reads."""
        return [
            product.layout(part) if part.dim() == 2 else part
            for direction in (0, 1)
            for name in ("ih", "hh")
            for part in self.weight_block(name, direction=direction)
        ]

    def cell(
        self, a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None
    ) -> CellState:
        return gru(a, u, state, update_mask)


def gru(a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None) -> CellState:
    """Returns the state of a gated recurrent unit after one time step. For supported devices and
    dtypes, the C++ extension computes the state.

    a: input pre-activations of the gates, W_ih x + b_ih [… 3Q]
    u: state pre-activations of the gates, W_hh h + b_hh [… 3Q]
    state: state before the step, (h [… Q],)
    update_mask: dropout mask of the candidate state n [… Q]; None without dropout
    """
    (h,) = state
    if update_mask is None and (torch.is_grad_enabled() or native(h)) and usable(a, u, h):
        return (NativeGRUStep.apply(a, u, h),)
    return (_next_state(a, u, h, update_mask),)


@fused
def _next_state(a: Tensor, u: Tensor, h: Tensor, update_mask: Tensor | None = None) -> Tensor:
    sizes = [2 * h.size(-1), h.size(-1)]
    a_rz, a_n = a.to(h.dtype).split(sizes, -1)  # [… 2Q], [… Q]
    u_rz, u_n = u.to(h.dtype).split(sizes, -1)
    r, z = torch.sigmoid(a_rz + u_rz).chunk(2, -1)  # [… Q], [… Q]
    n = tanh(torch.addcmul(a_n, r, u_n))  # [… Q]
    if update_mask is not None:
        n = n * update_mask
    return torch.lerp(n, h, z)  # h_t = (1 − z) n + z h
