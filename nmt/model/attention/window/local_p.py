"""Local attention with predictive alignment (local-p of Luong et al. 2015, eq. 9 and 10).

    p_t = S · sigmoid(v_pᵀ tanh(W_p h_t))
    α_t(s) ∝ align(h_t, h_s) · exp(−(s − p_t)² / 2σ²),  |s − p_t| ≤ D,  σ = D / 2

h_t is the decoder state of step t, h_s the annotation of source position s (0 to S − 1), p_t the
predicted centre, D = `distance`, and σ the standard deviation of the Gaussian. v_p and W_p are
parameters.

In the paper, the product is not normalised, so the weights sum to less than 1 (`normalized` =
false). By default, the logarithm of the Gaussian is added to the scores, so the weights remain a
distribution.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import Size
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.window import Window, WindowState, source_lengths


class LocalP(Window):
    """Attention window centred on a predicted source position.

    distance: D, number of source positions on each side of the centre
    normalized: whether the weights of a decoder step sum to 1
    """

    positional = True

    def __init__(self, *, query_size: int, distance: Size = 10, normalized: bool = True) -> None:
        super().__init__(query_size=query_size)
        self.distance = distance
        self.normalized = normalized
        self.query_layer = nn.Linear(query_size, query_size, bias=False)
        self.v = nn.Parameter(torch.empty(query_size).uniform_(-1, 1).mul_(query_size**-0.5))  # [P]

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error for weights that are not normalised together with a context gate, whose
        factor could not be separated from the weights that are reported."""
        yield from super().conflicts(run)
        if run.value("window.normalized") is False and run.value("decoder.context_gate"):
            yield run.error(
                "window.normalized",
                "with decoder.context_gate=true, the weights must sum to 1; leave this key out",
            )

    def centres(self, query: Float[Tensor, "N T P"], lengths: Tensor) -> Float[Tensor, "N T"]:
        """Returns the predicted centre of each window, a fractional source position.

        query: outputs of `query_layer`
        lengths: source lengths [N, 1], in tokens
        """
        return lengths * torch.sigmoid((torch.tanh(query) * self.v).sum(-1))

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        assert query is not None
        centres = self.centres(query, source_lengths(scores)).unsqueeze(-1)  # [N, T, 1]
        offsets = torch.arange(scores.size(2), device=scores.device) - centres  # [N, T, S]
        gaussian = -(offsets**2) / (2 * (self.distance / 2) ** 2)  # [N, T, S], its logarithm
        is_outside = offsets.abs() > self.distance  # [N, T, S]
        if self.normalized:
            return normalizer((scores + gaussian).masked_fill(is_outside, -torch.inf)), state
        return normalizer(scores.masked_fill(is_outside, -torch.inf)) * gaussian.exp(), state
