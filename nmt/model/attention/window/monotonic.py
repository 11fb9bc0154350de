"""Monotonic attention (Raffel et al. 2017): starts at the position of the previous decoder step,
moves right, and stops at position s with probability p_ts.

    p_ts = σ(e_ts + r + noise)

e_ts is the score and r a learnt offset. In training, the weights are the expectation over all
paths (eq. 9):

    α_ts = p_ts Σ_{j≤s} α_{t−1,j} Π_{j≤l<s} (1 − p_tl)        α_0 = (1, 0, 0, …)

In generation, attention stops at the first position with p_ts > 1/2. The paper's algorithm computes
scores only up to this position, in linear time; this implementation computes all scores.

The noise (standard normal, in training only) rewards scores far from the threshold. If no position
is chosen, attention goes to the last position, so that the weights remain a distribution; in the
paper, all weights are 0.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.window import Window, WindowState, source_lengths


class Monotonic(Window):
    """Attention window that moves only to the right.

    offset: initial value of the learnt offset r that is added to the scores
    noise: whether standard normal noise is added to the scores in training
    """

    recurs = True
    all_positive = False
    positional = True
    normalizes = False

    def __init__(self, *, query_size: int, offset: float = -1.0, noise: bool = True) -> None:
        super().__init__(query_size=query_size)
        self.offset = nn.Parameter(torch.tensor(float(offset)))
        self.noise = noise

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        """Returns the weights before the first decoder step [N, S], with all weight on the first
        position."""
        dtype = torch.promote_types(encoded.values.dtype, torch.float32)
        weights = encoded.values.new_zeros(rows, encoded.mask.size(1), dtype=dtype)  # [N, S]
        weights[:, 0] = 1.0  # the first decoder step starts at the first position
        return (weights,)

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        assert scores.size(1) == 1, (
            "a window whose attribute `recurs` is true accepts one decoder step per call"
        )
        energies = scores.squeeze(1) + self.offset  # [N, S]
        positions = torch.arange(scores.size(2), device=scores.device)  # [S]
        is_last = positions == source_lengths(scores) - 1  # [N, S]
        [previous] = state
        if self.training:
            if self.noise:
                energies = energies + torch.randn_like(energies)  # noise drives p towards 0 or 1
            weights = expectation(torch.sigmoid(energies).masked_fill(is_last, 1.0), previous)
        else:
            stops = (energies > 0) | is_last  # [N, S]; p > 1/2 where the score is positive
            is_ahead = previous.cumsum(-1) > 0.5  # at the previous position or to the right of it
            position = (stops & is_ahead).int().argmax(-1)  # [N]
            weights = (positions == position.unsqueeze(1)).to(scores.dtype)  # [N, S]
        return weights.unsqueeze(1), (weights.to(previous.dtype),)


def expectation(p: Float[Tensor, "N S"], previous: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
    """Returns the expected weights of monotonic attention at one decoder step. Products over ranges
    of positions are computed in log space, as differences of cumulative sums.

    p: probability that attention stops at a position once it has reached this position
    previous: expected weights of the previous decoder step
    """
    # [N, S], finite also where p is 1
    logs = torch.log1p(-p.clamp(max=1 - torch.finfo(p.dtype).eps))
    # Σ_{l<s} log(1 − p_l)
    sums = torch.cat([logs.new_zeros(len(p), 1), logs.cumsum(-1)[:, :-1]], 1)  # [N, S]
    products = (sums.unsqueeze(1) - sums.unsqueeze(2)).clamp(max=0.0).exp()  # [N, j, s]
    return p * (previous.unsqueeze(1) @ torch.triu(products)).squeeze(1)
