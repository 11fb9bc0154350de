"""Beam search with length and coverage penalties, exact early stopping, and words that must appear.

At each step every live hypothesis of a sentence is extended by every word, and the best `width` extensions survive.
Those that end in EOS are finished, and their places are free at the next step. So width 1 is greedy search, and a beam
with room for all hypotheses is exhaustive search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.limits import ConfigError, RunView
from nmt.foundation.ranges import NonNegative, Width
from nmt.search.allocation import allocate
from nmt.search.breadth import explore, most_probable
from nmt.search.penalty import ALPHA, Penalty, PenaltyName


class Beam:
    """`width` hypotheses per sentence; returns the `n_best` best by the scores of nmt/search/penalty.py."""

    def __init__(
        self,
        *,
        width: Width = 5,
        n_best: Width = 1,
        length_penalty: PenaltyName = "average",
        alpha: NonNegative = ALPHA,
        coverage: NonNegative = 0.0,
    ) -> None:
        if n_best > width:
            raise ValueError(
                f"search.n_best={n_best} is more than search.width={width} hypotheses can give"
            )
        self.width, self.n_best, self.penalty = (
            width,
            n_best,
            Penalty(length_penalty, alpha, coverage),
        )

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
        extend = most_probable
        if any(request.required for request in requests):
            extend = partial(allocate, requests)  # type: ignore[assignment]
        return explore(
            step,
            state,
            requests,
            extend,
            width=self.width,
            n_best=self.n_best,
            penalty=self.penalty,
        )
