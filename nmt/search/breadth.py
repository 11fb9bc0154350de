"""Breadth-first search: several hypotheses per sentence, all of the same length, one word longer at every step.

Beams and samples differ only in how live hypotheses are extended; everything else is here. Only live hypotheses are
rows of the next step; finished ones are kept aside. A sentence leaves the batch when none of its live hypotheses can
enter its n best any more (see `Penalty.bound`). This is exact: it never changes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nmt.foundation.interfaces import BOS, EOS, Hypothesis, Layout, Request, SearchState, Step
from nmt.search.penalty import Penalty
from nmt.search.top_k import top_k


@dataclass(frozen=True)
class Frontier:
    """The hypotheses of b sentences at one step. Each sentence has W places; those without a live hypothesis have the
    log-probability -inf and no row. Rows are numbered place by place: n of them, at the places `live` of b·W.

    `alive[i]` is the number that sentence i had at the start of the search; `prefixes` are the rows' words, BOS first.
    """

    totals: Float[Tensor, "b W"]
    live: Int[Tensor, " n"]
    prefixes: Int[Tensor, "n L"]
    alive: list[int]


Extended = tuple[Tensor, Tensor, Tensor]
"""For each of the W places of the next step: log-probability [b W], the place it extends [b W], by which word [b W]."""
Extend = Callable[[Frontier, Tensor], Extended]
"""(frontier, log-probabilities [n V] of the next word) → the places of the next step."""


@torch.inference_mode()
def explore(
    step: Step,
    state: SearchState,
    requests: Sequence[Request],
    extend: Extend,
    *,
    width: int,
    starts: Sequence[int] = (0,),
    n_best: int,
    penalty: Penalty,
) -> list[list[Hypothesis]]:
    """The `n_best` finished hypotheses of each sentence by `penalty`, best first (fewer if fewer can be found).

    The search starts with the empty hypothesis at the places `starts` of every sentence. Raises ValueError if the
    penalty asks for coverage and the step gives no attention.
    """
    if not requests:
        return []
    device = step.device
    finished: list[list[Hypothesis]] = [[] for _ in requests]
    alive = list(range(len(requests)))
    limits = torch.tensor([request.max_length for request in requests], device=device)
    totals = torch.full((len(alive), width), -torch.inf, device=device, dtype=torch.float64)
    totals[:, list(starts)] = 0.0
    rows = torch.arange(len(alive), device=device).repeat_interleave(len(starts))
    words = torch.full((len(rows),), BOS, device=device)
    prefixes = words.unsqueeze(1)
    if len(starts) > 1:
        state = state.select(rows)
    covered: Tensor | None = None
    done = [False] * len(alive)
    for length in range(max(request.max_length for request in requests) + 1):
        live = (totals > -torch.inf).flatten().nonzero().squeeze(1)
        prediction = step(
            words, state, None if len(live) == totals.numel() else Layout(width, live)
        )
        log_probs, state = prediction.log_probs, prediction.state
        _only_eos(log_probs, (limits[live // width] == length).nonzero().squeeze(1))
        if penalty.coverage:
            if prediction.weights is None or step.mask is None:
                raise ValueError(
                    "search.coverage needs a model with attention: set search.coverage=0"
                )
            covered = prediction.weights if covered is None else covered + prediction.weights
        totals, parents, words = extend(Frontier(totals, live, prefixes, alive), log_probs)
        rows = torch.arange(len(alive), device=device).unsqueeze(1) * width + parents
        if len(live) < totals.numel():  # empty places have no row: turn places into rows
            row_of = torch.zeros(totals.numel(), dtype=torch.long, device=device)
            row_of[live] = torch.arange(len(live), device=device)
            rows = row_of[rows]
        ended = (words == EOS) & (totals > -torch.inf)
        if ended.any():
            sentences, last = ended.nonzero()[:, 0], rows[ended]
            uncovered = [0.0] * len(last)
            if covered is not None and step.mask is not None:
                uncovered = penalty.of_coverage(covered[last], step.mask[sentences]).tolist()
            ending = zip(
                totals[ended].tolist(), prefixes[last, 1:].tolist(), uncovered, strict=True
            )
            for i, (log_prob, tokens, cost) in zip(sentences.tolist(), ending, strict=True):
                finished[alive[i]].append(
                    Hypothesis(tokens, log_prob, penalty.score(log_prob, length + 1, cost))
                )
            totals = totals.masked_fill(ended, -torch.inf)
        best_live = totals.max(-1).values.tolist()
        for i, sentence in enumerate(alive):
            bound = penalty.bound(
                best_live[i], length + 2, max(length + 2, requests[sentence].max_length + 1)
            )
            done[i] = best_live[i] == -torch.inf or _settled(finished[sentence], n_best, bound)
        left = [i for i, over in enumerate(done) if not over]
        if not left:
            break
        if len(left) < len(alive):
            kept = torch.tensor(left, device=device)
            step, rows = step.keep(kept), rows[kept]
            totals, words, limits = totals[kept], words[kept], limits[kept]
            alive, done = [alive[i] for i in left], [False] * len(left)
        going = totals > -torch.inf
        rows, words = rows[going], words[going]
        state, prefixes = state.select(rows), torch.cat([prefixes[rows], words.unsqueeze(1)], 1)
        covered = None if covered is None else covered[rows]
    return [sorted(hypotheses, key=lambda h: -h.score)[:n_best] for hypotheses in finished]


def most_probable(frontier: Frontier, log_probs: Tensor) -> Extended:
    """The W most probable extensions of each sentence."""
    totals, live = frontier.totals, frontier.live
    sentences, width = totals.shape
    per_place = min(width, log_probs.size(-1))
    best, words = top_k(log_probs, per_place)  # at most W extensions of one place can survive
    candidates = totals.new_full((sentences * width, per_place), -torch.inf)
    candidates[live] = totals.reshape(-1, 1)[live] + best
    chosen = words.new_full(candidates.shape, EOS)
    chosen[live] = words
    totals, places = candidates.view(sentences, -1).topk(width, -1)
    return totals, places // per_place, chosen.view(sentences, -1).gather(1, places)


def _only_eos(log_probs: Tensor, rows: Tensor) -> None:
    """Rows that have reached their limit can only be extended by EOS."""
    if len(rows):
        ends = log_probs[rows, EOS]
        log_probs[rows] = -torch.inf
        log_probs[rows, EOS] = ends


def _settled(finished: list[Hypothesis], n_best: int, bound: float) -> bool:
    """Whether a hypothesis with a score of at most `bound` can no longer enter the n best different ones."""
    if len(finished) < n_best:
        return False
    scores = sorted({tuple(h.tokens): h.score for h in finished}.values(), reverse=True)
    return len(scores) >= n_best and bound <= scores[n_best - 1]
