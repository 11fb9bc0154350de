"""Local attention with monotonic alignment (local-m of Luong et al. 2015, section 3.2).

Decoder step t attends to the source positions t − D to t + D. For steps beyond the end of the
source, the window stays centred on the last position.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.foundation.ranges import Size
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.window import Window, WindowState, source_lengths


class LocalM(Window):
    """Attention window whose centre moves one source position per decoder step.

    distance: D, number of source positions on each side of the centre
    """

    positional = True

    def __init__(self, *, query_size: int, distance: Size = 10) -> None:
        super().__init__(query_size=query_size)
        self.distance = distance

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        """Returns the window state before the first decoder step: the step index of each batch row
        [N], which is 0."""
        return (torch.zeros(rows, dtype=torch.long, device=encoded.values.device),)

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        [first] = state
        steps = first.unsqueeze(1) + torch.arange(scores.size(1), device=first.device)  # [N, T]
        centres = torch.minimum(steps, source_lengths(scores) - 1).unsqueeze(-1)  # [N, T, 1]
        positions = torch.arange(scores.size(2), device=scores.device)  # [S]
        is_outside = (positions - centres).abs() > self.distance  # [N, T, S]
        weights = normalizer(scores.masked_fill(is_outside, -torch.inf))  # [N, T, S]
        return weights, (first + scores.size(1),)
