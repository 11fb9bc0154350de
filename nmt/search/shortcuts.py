"""Optional fast methods of a `Step`, and a fast selection of the most probable tokens.

Searches work with every `Step`, and call a fast method if the `Step` implements it.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
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

BLOCK = 128
"""Number of values per block in `top_k`, which first computes the maximum of each block."""


@runtime_checkable
class RankingStep(Protocol):
    """Interface of a `Step` (model, as called by a search) that can find the most probable tokens
    without computing all log-probabilities. A `Step` need not implement it.
    """

    def ranked(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None, count: int
    ) -> RankedPrediction:
        """Returns the `count` most probable next tokens of each row (unfinished hypothesis).

        tokens: last token of each row
        state: decoder state of each row
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        count: number of tokens to return
        """


@runtime_checkable
class SearchingStep(Protocol):
    """Interface of a `Step` (model, as called by a search) that can run a complete beam search
    itself, for example in C++. A `Step` need not implement it.
    """

    def search(
        self,
        state: SearchState,
        requests: Sequence[Request],
        width: int,
        n_best: int,
        penalty: Penalty,
    ) -> list[list[Hypothesis]] | None:
        """Runs a complete beam search. Returns None if complete searches with the network are not
        supported.

        state: decoder state before the first token
        requests: search request of each sentence
        width: number of hypotheses per beam
        n_best: maximum number of hypotheses to return for each sentence
        penalty: length and coverage penalties, which define the score of a finished hypothesis
        """


def ranked(
    step: Step, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None, count: int
) -> RankedPrediction:
    """Returns the `count` most probable next tokens of each row (unfinished hypothesis). Calls
    `RankingStep.ranked` if the model interface `step` implements this method."""
    if isinstance(step, RankingStep):
        return step.ranked(tokens, state, layout, count)
    return best_tokens(step(tokens, state, layout), count)


def best_tokens(prediction: Prediction, count: int) -> RankedPrediction:
    """Returns the `count` most probable next tokens of each row, or all tokens if the vocabulary is
    smaller than `count`."""
    log_probs = prediction.log_probs  # [N, V]
    best = top_k(log_probs, min(count, log_probs.size(1)))  # [N, k], [N, k]
    return RankedPrediction(*best, log_probs[:, EOS], prediction.state, prediction.weights)


def top_k(x: Float[Tensor, "N V"], k: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Returns the k largest values of each row and their indices, largest first, like torch.topk.

    On CPUs, top-k is bound by comparisons, and maxima are bound by memory bandwidth. The function
    therefore computes the maximum of each block, and searches only the k blocks with the largest
    maxima, which contain the k largest values.

    x: rows of values
    k: number of values per row
    """
    blocks, tail = divmod(x.size(1), BLOCK)
    if x.is_cuda or blocks < 4 * k:
        return x.topk(k, -1)
    maxima = x[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK)).amax(-1)  # [N, blocks]
    if tail:
        maxima = torch.cat([maxima, x[:, -tail:].amax(-1, keepdim=True)], 1)
    first = maxima.topk(k, -1).indices * BLOCK
    # [N, k·BLOCK]
    indices = (first.unsqueeze(-1) + torch.arange(BLOCK, device=x.device)).flatten(1)
    candidates = x.gather(1, indices.clamp(max=x.size(1) - 1)).masked_fill_(
        indices >= x.size(1), -torch.inf
    )
    values, places = candidates.topk(k, -1)  # [N, k], [N, k]
    # Padding of the last block, with values of -inf, has no index.
    return values, indices.gather(1, places).clamp(max=x.size(1) - 1)


def whole_search(
    step: Step,
    state: SearchState,
    requests: Sequence[Request],
    *,
    width: int,
    n_best: int,
    penalty: Penalty,
) -> list[list[Hypothesis]] | None:
    """Runs a complete beam search with the method `search` of the model interface (`Step`).

    Returns None if the model interface has no method `search`, if this method does not support the
    network, or if the score has a coverage penalty.
    """
    if penalty.coverage or not isinstance(step, SearchingStep):
        return None
    return step.search(state, requests, width, n_best, penalty)
