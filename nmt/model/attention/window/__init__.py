"""Attention windows: restrictions of the source positions that attention can select.

A window receives the scores of N rows at T decoder steps, with −∞ at padding, and returns the
attention weights. A window changes the scores before normalisation or the weights afterwards. The
state of a window between decoder steps is passed in and returned, as tensors whose first dimension
indexes the batch rows. Each window is one file in this folder and one YAML file in conf/window.

Modules in reading order: this file, local_m, local_p, hard, monotonic.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.model.attention.normalizer import Normalizer

WindowState = tuple[Tensor, ...]
"""State of an attention window between decoder steps: tensors whose first dimension indexes the
batch rows (hypotheses in a search)."""


class Window(nn.Module):
    """Base class of attention windows. The base class itself implements the window `global`, which
    allows all positions.

    query_size: number of features of a query
    query_layer: linear layer from the query to an input of the window; None if the window does not
        depend on the query
    recurs: whether the weights of a decoder step depend on the weights of the previous step
    normalizes: whether the window calls the normaliser
    needs_reward: whether the window samples positions and learns from a reward (`reinforce_loss`)
    all_positive: whether all weights inside the window are above 0, so that their logarithms exist
    positional: whether the window depends on the order of positions in a single source text
    """

    recurs = False
    normalizes = True
    needs_reward = False
    all_positive = True
    positional = False

    def __init__(self, *, query_size: int) -> None:
        super().__init__()
        self.query_layer: nn.Linear | None = None

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if a positional window is combined with several sources, because their
        positions have no common order."""
        if cls.positional and run.sources + run.pictures > 1:
            yield ConfigError(
                "window",
                "this window restricts the positions of a single source text, but the data "
                "has several sources or images; use window=global or hard",
                cls.__module__.rpartition(".")[2],
            )

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        """Returns the window state before the first decoder step.

        encoded: output of the encoder
        rows: N, number of batch rows (hypotheses); a multiple of the number of sentences
        """
        return ()

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        """Returns the attention weights, and the window state after the last decoder step.

        scores: attention scores, −∞ at padding
        query: outputs of `query_layer`; None if the window has no such layer
        state: window state before the first of the T steps
        normalizer: function from scores to weights
        """
        return normalizer(scores), state

    def reinforce_loss(
        self, state: WindowState, log_likelihood: Float[Tensor, " N"], real: Bool[Tensor, "N T"]
    ) -> Float[Tensor, ""]:
        """Returns the REINFORCE loss of a window that samples positions (if `needs_reward` is
        True).

        state: window state after the last decoder step
        log_likelihood: log-likelihood of each row's target tokens given the sampled positions, in
            nats, without gradient
        real: True for decoder steps that are not padding
        """
        raise NotImplementedError


BASE = Window
"""Base class that every attention window in a configuration must extend."""


def source_lengths(scores: Float[Tensor, "N T S"]) -> Int[Tensor, "N 1"]:
    """Returns the number of source positions of each row, padding excluded.

    scores: attention scores, −∞ at padding
    """
    return (scores[:, 0] > -torch.inf).sum(-1, keepdim=True)
