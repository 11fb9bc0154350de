"""Softmax normaliser: every position that is not masked gets a weight above 0.

    softmax(z)_s = exp(z_s) / Σ_j exp(z_j)

z_s is the score of position s.
"""

from jaxtyping import Float
from torch import Tensor


class Softmax:
    """Softmax normaliser: maps each row of scores to positive weights that sum to 1."""

    def __call__(self, scores: Float[Tensor, "*rows S"]) -> Float[Tensor, "*rows S"]:
        return scores.softmax(-1)
