"""1.5-entmax (Peters et al. 2019): between softmax and sparsemax; sparse, yet smooth.

    p_s = max(0, z_s / 2 − τ)²,  Σ_s p_s = 1

With x = z / 2 sorted from the largest, and mean M_k and mean square Q_k of the first k,

    τ_k = M_k − √((1 − k (Q_k − M_k²)) / k)

and the size of the support is the number of k with τ_k ≤ x_k (algorithm 2). Gradient, with q = √p:
∂L/∂z = q (g − Σ q g / Σ q) (eq. 11).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function


class _Entmax15(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        x = (z - z.amax(-1, keepdim=True)) / 2
        # Nothing below −1 is in the support. The bound makes masked scores finite.
        ranked = x.sort(-1, descending=True).values.clamp(min=-2.0)  # [… S]
        k = torch.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype)  # [S]
        mean = ranked.cumsum(-1) / k  # [… S], of the k largest scores
        mean_square = (ranked**2).cumsum(-1) / k
        spread = (1 - k * (mean_square - mean**2)) / k
        taus = mean - spread.clamp(min=0).sqrt()  # [… S], the threshold of a support of k
        size = (taus <= ranked).sum(-1, keepdim=True)  # [… 1], of the support
        p = (x - taus.gather(-1, size - 1)).clamp(min=0) ** 2
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        q = ctx.saved_tensors[0].sqrt()  # [… S]
        # q is √p, which is 0 outside of the support.
        return q * (d - (q * d).sum(-1, keepdim=True) / q.sum(-1, keepdim=True))


class Entmax15:
    """1.5-entmax of each row."""

    all_positive = False

    def __call__(self, scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        return _Entmax15.apply(scores)
