"""Sparsemax normaliser (Martins & Astudillo 2016): the point of the probability simplex nearest to
the scores. Weights can be exactly 0.

    p_s = max(0, z_s − τ),  Σ_s p_s = 1

z contains the scores and p the weights. With z sorted in descending order, τ = (Σ_{j≤k} z_j − 1) /
k for the largest k with 1 + k z_k > Σ_{j≤k} z_j (algorithm 1).
"""

import torch
from jaxtyping import Float
from torch import Tensor


class Sparsemax:
    """Sparsemax normaliser: maps each row of scores to weights that sum to 1, some exactly 0."""

    all_positive = False

    def __call__(self, scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        # The shift makes the largest score 0. It changes no weight, so it needs no gradient.
        z = scores - scores.detach().amax(-1, keepdim=True)
        # Values below −1 get weight 0. The lower bound makes masked scores finite.
        ranked = z.sort(-1, descending=True).values.clamp(min=-2.0)  # [… S]
        k = torch.arange(1, z.size(-1) + 1, device=z.device, dtype=z.dtype)  # [S]
        sums = ranked.cumsum(-1)  # [… S], of the k largest scores
        # At least 1 even if the scores are NaN, so that the weights are NaN and no index is invalid.
        size = (1 + k * ranked > sums).sum(-1, keepdim=True).clamp(min=1)  # [… 1], of the support
        tau = (sums.gather(-1, size - 1) - 1) / size  # [… 1], the threshold
        return torch.relu(z - tau)
