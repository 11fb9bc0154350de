"""Diverse beam search (Vijayakumar et al. 2018, eq. 7, with Hamming diversity): several beams (groups) per sentence,
extended one after another at each step. A word loses `diversity` of log-probability each time that an earlier group has
chosen it at this step. The penalty affects only the choice: hypotheses keep the model's log-probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.limits import ConfigError, RunView
from nmt.foundation.ranges import NonNegative, Width
from nmt.search.breadth import Extended, Frontier, explore, most_probable
from nmt.search.constrained import refuse_required
from nmt.search.penalty import ALPHA, Penalty, PenaltyName


class Diverse:
    """`width` hypotheses in `groups` of equal size; returns the `n_best` different ones. One group: beam search."""

    def __init__(
        self,
        *,
        width: Width = 6,
        groups: Width = 3,
        diversity: NonNegative = 0.5,
        n_best: Width = 1,
        length_penalty: PenaltyName = "average",
        alpha: NonNegative = ALPHA,
        coverage: NonNegative = 0.0,
    ) -> None:
        if width % groups:
            raise ValueError(
                f"search.width={width} cannot be divided into search.groups={groups} groups of equal size"
            )
        if n_best > width:
            raise ValueError(
                f"search.n_best={n_best} is more than search.width={width} hypotheses can give"
            )
        self.width, self.groups, self.diversity, self.n_best = width, groups, diversity, n_best
        self.penalty = Penalty(length_penalty, alpha, coverage)

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """A penalty of attention that the network does not have."""
        return run.needing_attention("search.coverage")

    @property
    def needs_attention(self) -> bool:
        return self.penalty.coverage > 0

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "diverse")
        starts = range(0, self.width, self.width // self.groups)
        found = explore(
            step,
            state,
            requests,
            self._extend,
            width=self.width,
            starts=starts,
            n_best=self.width,
            penalty=self.penalty,
        )
        return [_different(hypotheses)[: self.n_best] for hypotheses in found]

    def _extend(self, frontier: Frontier, log_probs: Tensor) -> Extended:
        sentences, width = frontier.totals.shape
        size = width // self.groups
        chosen = log_probs.new_zeros(
            sentences, log_probs.size(1)
        )  # how often each word was, at this step
        parts = []
        for first in range(0, width, size):
            mine = (frontier.live % width >= first) & (frontier.live % width < first + size)
            live, own = frontier.live[mine], log_probs[mine]
            inside = (live // width) * size + live % width - first
            totals = frontier.totals[:, first : first + size]
            group = Frontier(totals, inside, frontier.prefixes[mine], frontier.alive)
            steered, parents, words = most_probable(
                group, own - self.diversity * chosen[live // width]
            )
            once = (steered > -torch.inf).to(chosen.dtype)
            steered = steered + self.diversity * chosen.gather(
                1, words
            )  # the model's log-probability again
            chosen.scatter_add_(1, words, once)
            parts.append((steered, parents + first, words))
        return tuple(torch.cat(column, 1) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def _different(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Without repetitions, in the same order."""
    found: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        found.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(found.values())
