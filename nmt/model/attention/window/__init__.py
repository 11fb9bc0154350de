"""Windows: restrictions of the positions that attention may weight.

A window changes the scores of a query before they are normalised, or the weights after it. It gets
the scores of N rows at T steps, −∞ at padding, and gives weights that sum to 1. Its state from step
to step is passed in and returned, as tensors whose first dimension is the row. A window is one file
here and one YAML in conf/window.

Read: this file, local_m, local_p, hard, monotonic.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.model.attention.normalizer import Normalizer

WindowState = tuple[Tensor, ...]


class Window(nn.Module):
    """Base of all windows; by itself the window `global`, which restricts nothing.

    query_size: features of a query
    query_layer: linear map of the query, whose output the window gets (None: it needs no query)
    recurs: whether a step depends on the weights of the step before
    normalizes: whether the window uses the normaliser
    needs_reward: whether the window samples positions and learns from a reward (`reinforce_loss`)
    all_positive: whether every weight inside the window is above 0, so that its logarithm exists
    positional: whether the window needs the order of the positions of a single source text
    """

    recurs = False
    normalizes = True
    needs_reward = False
    all_positive = True
    positional = False
    query_layer: nn.Linear | None

    def __init__(self, *, query_size: int) -> None:
        super().__init__()
        self.query_layer = None

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Several sources, whose positions have no common order."""
        if cls.positional and run.sources + run.pictures > 1:
            yield ConfigError(
                "window",
                "restricts positions of one source, and here are several, or a picture too: "
                "use window=global or hard",
                cls.__module__.rpartition(".")[2],
            )

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        """State before the first step.

        encoded: output of the encoder
        rows: N, equally many for each sentence
        """
        return ()

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        """Weights, and the state after the last step.

        scores: −∞ at padding
        query: outputs of `query_layer`
        state: state before the first step
        normalizer: function from scores to weights
        """
        return normalizer(scores), state

    def reinforce_loss(
        self, state: WindowState, log_likelihood: Float[Tensor, " N"], real: Bool[Tensor, "N T"]
    ) -> Float[Tensor, ""]:
        """Loss term of a window with `needs_reward`.

        state: state after the last step
        log_likelihood: log-likelihood of each row's words under the choices, without gradient
        real: steps that are not padding
        """
        raise NotImplementedError


def source_lengths(scores: Float[Tensor, "N T S"]) -> Int[Tensor, "N 1"]:
    """Numbers of real positions of each row.

    scores: −∞ at padding
    """
    return (scores[:, 0] > -torch.inf).sum(-1, keepdim=True)
