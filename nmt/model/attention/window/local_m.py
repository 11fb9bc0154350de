"""Local attention with monotonic alignment, local-m of Luong et al. 2015, section 3.2: step t looks at the source positions
[t − D, t + D]; steps beyond the end of the source stay at its end."""

import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Encoded
from nmt.foundation.ranges import Size
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.window import Window, WindowState, source_lengths, step_numbers


class LocalM(Window):
    """`distance` is D."""

    positional = True

    def __init__(self, *, query_size: int, distance: Size = 10) -> None:
        super().__init__(query_size=query_size)
        self.distance = distance

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        return (torch.zeros(rows, dtype=torch.long, device=encoded.values.device),)

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        steps, state = step_numbers(state, scores.size(1))
        centres = torch.minimum(steps, source_lengths(scores) - 1).unsqueeze(-1)
        positions = torch.arange(scores.size(2), device=scores.device)
        return normalizer(
            scores.masked_fill((positions - centres).abs() > self.distance, -torch.inf)
        ), state
