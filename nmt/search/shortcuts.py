"""Faster ways that a step may offer. A search works with every `Step`; it takes these where a step
has them."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Int
from torch import Tensor

from nmt.foundation.interfaces import (
    EOS,
    Hypothesis,
    Layout,
    Prediction,
    RankedPrediction,
    Request,
    SearchState,
    Step,
)
from nmt.search.penalty import Penalty
from nmt.search.top_k import top_k


@runtime_checkable
class RankingStep(Protocol):
    """A step that finds the most probable tokens without all log-probabilities."""

    def ranked(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None, count: int
    ) -> RankedPrediction:
        """The `count` most probable next tokens of each row; other arguments as for a step."""
        ...


@runtime_checkable
class SearchingStep(Protocol):
    """A step that can do whole beam searches."""

    def search(
        self,
        state: SearchState,
        requests: Sequence[Request],
        width: int,
        n_best: int,
        penalty: Penalty,
    ) -> list[list[Hypothesis]] | None:
        """Hypotheses as `breadth_first_search` returns them; None for networks that it cannot
        compute."""
        ...


def ranked(
    step: Step, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None, count: int
) -> RankedPrediction:
    """The `count` most probable next tokens of each row."""
    if isinstance(step, RankingStep):
        return step.ranked(tokens, state, layout, count)
    return best_tokens(step(tokens, state, layout), count)


def best_tokens(prediction: Prediction, count: int) -> RankedPrediction:
    """The `count` most probable tokens of a prediction, or all if there are fewer."""
    log_probs = prediction.log_probs  # [N, V]
    best = top_k(log_probs, min(count, log_probs.size(1)))  # [N, k], [N, k]
    return RankedPrediction(*best, log_probs[:, EOS], prediction.state, prediction.weights)


def whole_search(
    step: Step,
    state: SearchState,
    requests: Sequence[Request],
    *,
    width: int,
    n_best: int,
    penalty: Penalty,
) -> list[list[Hypothesis]] | None:
    """A beam search done by the step itself; None if the step cannot."""
    if penalty.coverage or not isinstance(step, SearchingStep):
        return None
    return step.search(state, requests, width, n_best, penalty)
