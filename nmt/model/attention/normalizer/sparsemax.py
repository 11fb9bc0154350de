"""Sparsemax normaliser (Martins & Astudillo 2016): the point of the probability simplex nearest to
the scores. Weights can be exactly 0.

    p_s = max(0, z_s − τ),  Σ_s p_s = 1

z contains the scores and p the weights. With z sorted in descending order, τ = (Σ_{j≤k} z_j − 1) /
k for the largest k with 1 + k z_k > Σ_{j≤k} z_j (algorithm 1). For an output gradient g, the input
gradient on the support is ∂L/∂z = g − mean(g) (eq. 12).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function


class _Sparsemax(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        z = z - z.amax(-1, keepdim=True)
        # Values below −1 get weight 0. The lower bound makes masked scores finite.
        ranked = z.sort(-1, descending=True).values.clamp(min=-2.0)  # [… S]
        k = torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)  # [S]
        sums = ranked.cumsum(-1)  # [… S], of the k largest scores
        size = (1 + k * ranked > sums).sum(-1, keepdim=True)  # [… 1], of the support
        tau = (sums.gather(-1, size - 1) - 1) / size  # [… 1], the threshold
        p = (z - tau).clamp(min=0)  # [… S]
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        support = (ctx.saved_tensors[0] > 0).to(d.dtype)  # [… S]
        # [… 1]
        mean = (d * support).sum(-1, keepdim=True) / support.sum(-1, keepdim=True)
        return (d - mean) * support


class Sparsemax:
    """Sparsemax normaliser: maps each row of scores to weights that sum to 1, some exactly 0."""

    all_positive = False

    def __call__(self, scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        return _Sparsemax.apply(scores)
