"""Breadth-first search: several hypotheses per sentence, all of the same length, one token longer at every step.

Beams and samples differ only in how hypotheses are extended; everything else is here. Only unfinished hypotheses are
rows of the next step. A sentence leaves the batch when none of its unfinished hypotheses can enter its n best any more
(see `Penalty.bound`); this is exact and never changes the result.

Dimensions: b sentences still searched, W slots per sentence, n rows, L tokens, V vocabulary, S source length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.foundation.interfaces import BOS, EOS, Hypothesis, Layout, Request, SearchState, Step
from nmt.search.penalty import Penalty
from nmt.search.top_k import top_k


@dataclass(frozen=True)
class Extension:
    """New content of each slot: a hypothesis with one more token, finished if the token is EOS.

    totals: log-probability of the extended hypothesis, -inf for an empty slot
    parents: slot of the same sentence, from 0 to W - 1, whose hypothesis is extended
    tokens: the token that is appended
    """

    totals: Float[Tensor, "b W"]
    parents: Int[Tensor, "b W"]
    tokens: Int[Tensor, "b W"]

    @property
    def ended(self) -> Bool[Tensor, "b W"]:
        """Slots whose hypothesis is finished."""
        return (self.tokens == EOS) & (self.totals > -torch.inf)

    @property
    def open_totals(self) -> Float[Tensor, "b W"]:
        """Log-probabilities of the unfinished hypotheses, -inf elsewhere."""
        return self.totals.masked_fill(self.ended, -torch.inf)


@dataclass(frozen=True)
class BeamState:
    """Unfinished hypotheses of b sentences. Each sentence has W slots; an empty slot has no row.

    sentences: number of each sentence at the start of the search
    limits: largest number of tokens of each sentence, EOS not counted
    totals: log-probability of the hypothesis in each slot, -inf for an empty slot
    slots: slot of each row among all b·W, ascending
    prefixes: tokens of each row, BOS first
    coverage: total attention of each row to the source positions (None: not needed)
    """

    sentences: list[int]
    limits: Int[Tensor, " b"]
    totals: Float[Tensor, "b W"]
    slots: Int[Tensor, " n"]
    prefixes: Int[Tensor, "n L"]
    coverage: Float[Tensor, "n S"] | None = None

    @staticmethod
    def start(
        requests: Sequence[Request], width: int, starts: Sequence[int], device: torch.device
    ) -> BeamState:
        """The empty hypothesis in the slots `starts` of each of `width`."""
        totals = torch.full((len(requests), width), -torch.inf, device=device, dtype=torch.float64)
        totals[:, list(starts)] = 0.0
        slots = _occupied(totals)
        return BeamState(
            sentences=list(range(len(requests))),
            limits=torch.tensor([request.max_length for request in requests], device=device),
            totals=totals,
            slots=slots,
            prefixes=torch.full((len(slots), 1), BOS, device=device),
        )

    @property
    def width(self) -> int:
        """W."""
        return self.totals.size(1)

    @property
    def layout(self) -> Layout | None:
        """Layout of the rows; None if every slot has one."""
        return None if len(self.slots) == self.totals.numel() else Layout(self.width, self.slots)

    def allow_only_eos_at_limit(self, log_probs: Float[Tensor, "n V"], length: int) -> None:
        """Rules out, in place, all tokens but EOS after hypotheses whose `length` is the limit."""
        rows = (self.limits[self.slots // self.width] == length).nonzero().squeeze(1)
        if len(rows):
            log_prob = log_probs[rows, EOS]
            log_probs[rows] = -torch.inf
            log_probs[rows, EOS] = log_prob

    def covering(self, weights: Float[Tensor, "n S"]) -> BeamState:
        """Hypotheses after one more step of attention."""
        return replace(self, coverage=weights if self.coverage is None else self.coverage + weights)

    def rows(self, parents: Int[Tensor, "b W"]) -> Int[Tensor, "b W"]:
        """Rows of the hypotheses in slots of each sentence."""
        device = parents.device
        first_slots = torch.arange(len(self.sentences), device=device) * self.width  # [b]
        slots = first_slots.unsqueeze(1) + parents
        if self.layout is None:
            return slots
        row_of_slot = torch.zeros(self.totals.numel(), dtype=torch.long, device=device)  # [b·W]
        row_of_slot[self.slots] = torch.arange(len(self.slots), device=device)
        return row_of_slot[slots]

    def finished(
        self, extension: Extension, mask: Bool[Tensor, "b S"] | None, penalty: Penalty
    ) -> Iterator[tuple[int, Hypothesis]]:
        """Number of the sentence and hypothesis for each slot that an extension finishes.

        mask: real source positions, needed for coverage
        penalty: score of finished hypotheses
        """
        ended = extension.ended
        if not ended.any():
            return
        rows = self.rows(extension.parents)[ended]  # [e], e finished hypotheses
        indices = ended.nonzero()[:, 0]  # [e], their sentences among the b
        costs = [0.0] * len(rows)
        if self.coverage is not None and mask is not None:
            costs = penalty.of_coverage(self.coverage[rows], mask[indices]).tolist()
        log_probs = extension.totals[ended].tolist()
        prefixes = self.prefixes[rows, 1:].tolist()
        length = self.prefixes.size(1)  # tokens of a finished hypothesis: EOS instead of BOS
        for i, log_prob, tokens, cost in zip(
            indices.tolist(), log_probs, prefixes, costs, strict=True
        ):
            score = penalty.score(log_prob, length, cost)
            yield self.sentences[i], Hypothesis(tokens, log_prob, score)

    def advance(
        self, extension: Extension, kept: Int[Tensor, " k"] | None
    ) -> tuple[BeamState, Int[Tensor, " m"]]:
        """Hypotheses of the next step, and the row of this step that each of its m rows extends.

        kept: sentences among the b that are searched further (None: all)
        """
        rows = self.rows(extension.parents)  # [b, W]
        tokens = extension.tokens  # [b, W]
        totals = extension.open_totals  # [b, W]
        sentences, limits = self.sentences, self.limits
        if kept is not None:
            rows = rows[kept]
            tokens = tokens[kept]
            totals = totals[kept]
            limits = limits[kept]
            sentences = [sentences[i] for i in kept.tolist()]
        is_open = totals > -torch.inf
        rows = rows[is_open]  # [m]
        beam = BeamState(
            sentences=sentences,
            limits=limits,
            totals=totals,
            slots=_occupied(totals),
            prefixes=torch.cat([self.prefixes[rows], tokens[is_open].unsqueeze(1)], 1),
            coverage=None if self.coverage is None else self.coverage[rows],
        )
        return beam, rows


Extend = Callable[[BeamState, Tensor], Extension]
"""(hypotheses, log-probabilities [n V] of the next token) → content of the slots at the next step."""


@torch.inference_mode()
def breadth_first_search(
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

    step: log-probabilities of the next token
    state: state of the step before the first token, one row per sentence
    requests: one per sentence
    extend: choice of the next hypotheses
    width: slots of each sentence
    starts: slots that hold the empty hypothesis at the start
    penalty: score of finished hypotheses

    Raises ValueError if the penalty needs coverage and the step has no attention.
    """
    if not requests:
        return []
    if penalty.coverage and step.mask is None:
        raise ValueError("search.coverage needs a model with attention: set search.coverage=0")
    beam = BeamState.start(requests, width, starts, step.device)
    if len(starts) > 1:
        state = state.select(beam.slots // width)
    finished: list[list[Hypothesis]] = [[] for _ in requests]
    for length in range(max(request.max_length for request in requests) + 1):
        prediction = step(beam.prefixes[:, -1], state, beam.layout)
        beam.allow_only_eos_at_limit(prediction.log_probs, length)
        if penalty.coverage:
            assert prediction.weights is not None
            beam = beam.covering(prediction.weights)
        extension = extend(beam, prediction.log_probs)
        for sentence, hypothesis in beam.finished(extension, step.mask, penalty):
            finished[sentence].append(hypothesis)
        best_open = extension.open_totals.max(-1).values.tolist()  # b numbers
        unsettled = []
        for i, (sentence, log_prob) in enumerate(zip(beam.sentences, best_open, strict=True)):
            shortest = length + 2  # tokens of a hypothesis that ends at the next step
            longest = max(shortest, requests[sentence].max_length + 1)
            bound = penalty.bound(log_prob, shortest, longest)
            if log_prob > -torch.inf and not _settled(finished[sentence], n_best, bound):
                unsettled.append(i)
        if not unsettled:
            break
        kept = None
        if len(unsettled) < len(beam.sentences):
            kept = torch.tensor(unsettled, device=step.device)
            step = step.keep(kept)
        beam, rows = beam.advance(extension, kept)
        state = prediction.state.select(rows)
    return [sorted(hypotheses, key=lambda h: -h.score)[:n_best] for hypotheses in finished]


def most_probable(beam: BeamState, log_probs: Float[Tensor, "n V"]) -> Extension:
    """The W most probable extensions of each sentence."""
    sentences, width = beam.totals.shape
    per_slot = min(width, log_probs.size(-1))  # at most W extensions of one slot can survive: k
    best, best_tokens = top_k(log_probs, per_slot)  # [n, k]
    candidates = beam.totals.new_full((sentences * width, per_slot), -torch.inf)  # [b·W, k]
    candidates[beam.slots] = beam.totals.reshape(-1, 1)[beam.slots] + best
    tokens = best_tokens.new_full(candidates.shape, EOS)  # [b·W, k]
    tokens[beam.slots] = best_tokens
    totals, indices = candidates.view(sentences, -1).topk(width, -1)  # [b, W], indices of W·k
    return Extension(
        totals=totals,
        parents=indices // per_slot,
        tokens=tokens.view(sentences, -1).gather(1, indices),
    )


def _occupied(totals: Float[Tensor, "b W"]) -> Int[Tensor, " n"]:
    """Slots with a hypothesis, among all b·W."""
    return (totals > -torch.inf).flatten().nonzero().squeeze(1)


def _settled(finished: list[Hypothesis], n_best: int, bound: float) -> bool:
    """Whether a hypothesis with a score of at most `bound` cannot enter the n best different ones."""
    if len(finished) < n_best:
        return False
    scores = sorted({tuple(h.tokens): h.score for h in finished}.values(), reverse=True)
    return len(scores) >= n_best and bound <= scores[n_best - 1]
