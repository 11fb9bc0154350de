"""Beam search with length and coverage penalties, exact early stopping, and required words.

Each step extends every unfinished hypothesis of a sentence by every token, and keeps the `width`
most probable extensions. Hypotheses that end with EOS are finished and leave the beam; the next
step can fill their slots again. Width 1 is greedy search; a beam with room for all hypotheses is
exhaustive search.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.parameter_types import check_arguments
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import NonNegative, Range, Width
from nmt.search.beam_allocation import allocate
from nmt.search.breadth_first import Extend, breadth_first_search, most_probable
from nmt.search.penalty import ALPHA, Penalty, PenaltyName
from nmt.search.shortcuts import whole_search


class Beam:
    """Beam search.

    width: beam width, the number of hypotheses per sentence
    n_best: number of hypotheses to return per sentence, at most `width`
    length_penalty: name of the length penalty: none, average, power, wu or reward
    alpha: exponent or reward of the length penalty
    coverage: weight of the coverage penalty; 0 disables the penalty

    Raises ValueError if a value is out of range, or `n_best` is larger than `width`.
    """

    def __init__(
        self,
        *,
        width: Width = 5,
        n_best: Width = 1,
        length_penalty: PenaltyName = "average",
        alpha: Annotated[float, Range(0, 10)] = ALPHA,
        coverage: NonNegative = 0.0,
    ) -> None:
        check_arguments(
            "search",
            Beam,
            width=width,
            n_best=n_best,
            length_penalty=length_penalty,
            alpha=alpha,
            coverage=coverage,
        )
        if n_best > width:
            raise ValueError(f"search.n_best={n_best} must be at most search.width={width}")
        self.width = width
        self.n_best = n_best
        self.penalty = Penalty(length_penalty, alpha, coverage)

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error if a coverage penalty is set for a network without attention."""
        return run.needing_attention("search.coverage")

    @property
    def needs_attention(self) -> bool:
        """Whether the search needs attention weights, i.e. has a coverage penalty."""
        return self.penalty.coverage > 0

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        extend: Extend = most_probable
        if any(request.required for request in requests):
            extend = partial(allocate, requests)
        else:
            whole = whole_search(
                step,
                state,
                requests,
                width=self.width,
                n_best=self.n_best,
                penalty=self.penalty,
            )
            if whole is not None:
                return whole
        return breadth_first_search(
            step,
            state,
            requests,
            extend,
            width=self.width,
            n_best=self.n_best,
            penalty=self.penalty,
        )
