"""Where attention may look: a window changes the scores of a query before they are normalised, or the weights after it.

A window gets the scores of N rows at T steps, −∞ at padding, and gives weights that sum to 1. What it must remember
from step to step is passed in and returned, as tensors whose first dimension is the row. A window is one file here and
one YAML in conf/window.

Read: this file, local_m, local_p, hard, monotonic.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.model.attention.normalizer import Normalizer

WindowState = tuple[Tensor, ...]


class Window(nn.Module):
    """Base of all windows; by itself the window `global`, which restricts nothing.

    A window is built with `query_size`. `query_layer` is a linear map of the query, whose output the window gets (None:
    it needs no query). `recurs`: what it does at one step depends on its weights at the step before. `normalizes`: it uses
    the normaliser. `needs_reward`: it chooses by chance, and must be told how well that went (`reinforce_loss`).
    """

    recurs = False
    normalizes = True
    needs_reward = False
    all_positive = True
    """Whether every weight inside the window is above 0, so that its logarithm exists."""
    positional = False
    """Whether the window needs the order of the positions of a single source text."""
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
                "looks at places of one source, and here are several, or a picture too: "
                "use window=global or hard",
                cls.__module__.rpartition(".")[2],
            )

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        """What is remembered before the first step, for `rows` rows."""
        return ()

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        """Weights, and what to remember; `query` is the output of `query_layer`."""
        return normalizer(scores), state

    def reinforce_loss(
        self, state: WindowState, log_likelihood: Float[Tensor, " N"], real: Bool[Tensor, "N T"]
    ) -> Float[Tensor, ""]:
        """Loss term of a window with `needs_reward`.

        state: state after the last step
        log_likelihood: log-likelihood of each row's words under the choices, without gradient
        real: steps that are no padding
        """
        raise NotImplementedError


def source_lengths(scores: Float[Tensor, "N T S"]) -> Tensor:
    """[N, 1] numbers of real positions."""
    return (scores[:, 0] > -torch.inf).sum(-1, keepdim=True)


def step_numbers(state: WindowState, steps: int) -> tuple[Tensor, WindowState]:
    """[N, T] numbers of the steps, from 0, for windows that count them in state[0] [N]."""
    return state[0].unsqueeze(1) + torch.arange(steps, device=state[0].device), (state[0] + steps,)
