"""1.5-entmax (Peters et al. 2019): a smooth normaliser that can give zero weights, between softmax
and sparsemax.

    p_s = max(0, z_s / 2 − τ)²,  Σ_s p_s = 1

z contains the scores and p the weights. Let x = z / 2 be sorted in descending order, M_k the mean
and Q_k the mean square of the k largest entries. The threshold for a support of size k is

    τ_k = M_k − √((1 − k (Q_k − M_k²)) / k)

and the size of the support is the number of k with τ_k ≤ x_k (algorithm 2).
"""

import torch
from jaxtyping import Float
from torch import Tensor


class Entmax15:
    """1.5-entmax normaliser: maps each row of scores to weights that sum to 1, some exactly 0."""

    all_positive = False

    def __call__(self, scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        # The shift makes the largest score 0. It changes no weight, so it needs no gradient.
        x = (scores - scores.detach().amax(-1, keepdim=True)) / 2
        # Values below −1 get weight 0. The lower bound makes masked scores finite.
        ranked = x.sort(-1, descending=True).values.clamp(min=-2.0)  # [… S]
        k = torch.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype)  # [S]
        mean = ranked.cumsum(-1) / k  # [… S], of the k largest scores
        mean_square = (ranked**2).cumsum(-1) / k  # [… S], of the k largest scores
        spread = (1 - k * (mean_square - mean**2)) / k  # [… S]
        taus = mean - spread.clamp(min=0).sqrt()  # [… S], the threshold of a support of k
        # At least 1 even if the scores are NaN, so that the weights are NaN and no index is invalid.
        size = (taus <= ranked).sum(-1, keepdim=True).clamp(min=1)  # [… 1], of the support
        # Recomputed, because the root of 0, of another k, would have the gradient NaN.
        tau = mean.gather(-1, size - 1) - spread.gather(-1, size - 1).sqrt()  # [… 1]
        return torch.relu(x - tau) ** 2
