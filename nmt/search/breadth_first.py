"""Breadth-first search: extends several hypotheses per sentence by one token at every step.

Beam search and sampling differ only in the choice of extensions, and share the loop over decoder
steps. Each step computes only unfinished hypotheses. A sentence leaves the batch as soon as none of
its unfinished hypotheses can enter its n-best list. Because `Penalty.bound` is an upper bound of
their scores, early stopping does not change the result.

Dimensions: b unfinished sentences, W beam slots per sentence, n rows (unfinished hypotheses), L
tokens, vocabulary size V, source length S.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.foundation.interfaces import (
    BOS,
    EOS,
    Hypothesis,
    Layout,
    Prediction,
    RankedPrediction,
    Request,
    SearchState,
    Step,
    to_device,
    to_host,
)
from nmt.search.penalty import Penalty
from nmt.search.shortcuts import ranked, top_k


@dataclass(frozen=True)
class Extension:
    """New content of each beam slot: a hypothesis extended by one token. The hypothesis is finished
    if the token is EOS.

    totals: log-probability of the extended hypothesis; -inf for an empty slot
    parents: beam slot, within the sentence, of the hypothesis that is extended
    tokens: token that is appended
    """

    totals: Float[Tensor, "b W"]
    parents: Int[Tensor, "b W"]
    tokens: Int[Tensor, "b W"]


class HostExtension:
    """NumPy copy, on the CPU, of an `Extension` (extended hypotheses in the beam slots). The search
    selects hypotheses from this copy.

    penalties: coverage penalty of each row (hypothesis) before the extension [n]; None if the
        search has no coverage penalty
    ended: True for beam slots whose hypothesis is finished
    open_totals: log-probability of the unfinished hypothesis in each beam slot; -inf for all other
        slots
    """

    def __init__(self, extension: Extension, penalties: Float[Tensor, " n"] | None = None) -> None:
        slots = extension.totals, extension.parents, extension.tokens
        arrays = to_host(*slots, *(() if penalties is None else (penalties,)))
        self.totals = arrays[0]
        self.parents = arrays[1]
        self.tokens = arrays[2]
        self.penalties = None if penalties is None else arrays[3]
        self.ended = (self.tokens == EOS) & (self.totals > -np.inf)
        self.open_totals = np.where(self.ended, -np.inf, self.totals)


@dataclass(frozen=True)
class BeamState:
    """Unfinished hypotheses of b sentences. Each sentence has W beam slots; each non-empty slot has
    one row in the tensors of the model. Arrays are on the CPU, tensors on the device of the model.

    sentences: index of each sentence in the batch at the start of the search
    limits: maximum number of output tokens of each sentence, EOS not counted
    totals: log-probability of the hypothesis in each beam slot; -inf for an empty slot
    slots: index of each row's slot among all b·W beam slots, in ascending order [n]
    prefixes: tokens of each row so far, BOS first [n, L]
    coverage: total attention of each row to each source position; None if the score has no coverage
        penalty
    """

    sentences: list[int]
    limits: np.ndarray
    totals: Float[Tensor, "b W"]
    slots: np.ndarray
    prefixes: np.ndarray
    coverage: Float[Tensor, "n S"] | None = None

    @staticmethod
    def start(
        requests: Sequence[Request], width: int, starts: Sequence[int], device: torch.device
    ) -> BeamState:
        """Returns the state at the start of a search, with an empty hypothesis in each beam slot
        listed in `starts`, for every sentence."""
        totals = np.full((len(requests), width), -np.inf)
        totals[:, list(starts)] = 0.0
        slots = np.flatnonzero(totals > -np.inf)
        return BeamState(
            sentences=list(range(len(requests))),
            limits=np.array([request.max_length for request in requests]),
            totals=to_device(torch.from_numpy(totals), device),
            slots=slots,
            prefixes=np.full((len(slots), 1), BOS),
        )

    @property
    def width(self) -> int:
        """Number of beam slots per sentence."""
        return self.totals.size(1)

    @property
    def layout(self) -> Layout | None:
        """Beam slot of each row; None if no slot is empty."""
        if len(self.slots) == self.totals.numel():
            return None
        return Layout(self.width, torch.from_numpy(self.slots))

    @property
    def at_limit(self) -> Int[Tensor, " m"] | None:
        """Row indices of the hypotheses that have reached their length limit; None without such
        hypotheses.
        """
        length = self.prefixes.shape[1] - 1  # without BOS
        if length not in self.limits:
            return None
        is_at_limit = self.limits[self.slots // self.width] == length  # [n]
        return self.on_device(np.flatnonzero(is_at_limit))

    def only_eos_at_limit(
        self, prediction: RankedPrediction
    ) -> tuple[Float[Tensor, "n k"], Int[Tensor, "n k"]]:
        """Returns the log-probabilities and ids of the most probable next tokens. Hypotheses at
        their length limit can only be extended by EOS.

        prediction: most probable next tokens of each hypothesis, without length limit
        """
        values = prediction.log_probs
        tokens = prediction.tokens
        rows = self.at_limit
        if rows is not None:
            # Unlike `values[rows] = -inf`, `index_fill_` does not make the host wait for a GPU.
            values.index_fill_(0, rows, -torch.inf)
            values[rows, 0] = prediction.ends[rows]
            tokens.index_fill_(0, rows, EOS)
        return values, tokens

    def allow_only_eos_at_limit(self, log_probs: Float[Tensor, "n V"]) -> None:
        """Sets the log-probabilities of all tokens except EOS to -inf, in place, for hypotheses
        that have reached their length limit."""
        rows = self.at_limit
        if rows is not None:
            log_prob = log_probs[rows, EOS]  # [m]
            log_probs.index_fill_(0, rows, -torch.inf)
            log_probs[rows, EOS] = log_prob

    @cached_property
    def device_slots(self) -> Int[Tensor, " n"]:
        """Beam slot of each row, as a tensor on the device of the model."""
        return self.on_device(self.slots)

    def on_device(self, array: np.ndarray) -> Tensor:
        """Converts an array to a tensor on the device of the model."""
        return to_device(torch.from_numpy(array), self.totals.device)

    def with_coverage(self, weights: Float[Tensor, "n S"] | None) -> "BeamState":
        """Returns the state with the attention weights of a step added to the coverage."""
        assert weights is not None
        return replace(self, coverage=weights + (0 if self.coverage is None else self.coverage))

    def coverage_penalties(
        self, penalty: Penalty, mask: Bool[Tensor, "b S"] | None
    ) -> Tensor | None:
        """Returns the coverage penalty of each unfinished hypothesis [n], at most 0; None if the
        score has no coverage penalty.

        mask: True for source positions that are not padding
        """
        if self.coverage is None or mask is None:
            return None
        return penalty.of_coverage(self.coverage, mask[self.device_slots // self.width])

    def parent_rows(self, extension: HostExtension) -> np.ndarray:
        """Returns an array [b, W] with the row index of the hypothesis that each beam slot
        extends."""
        first_slots = np.arange(0, self.totals.numel(), self.width)  # [b]
        slots = first_slots[:, None] + extension.parents
        row_of_slot = np.zeros(self.totals.numel(), dtype=np.int64)  # [b·W]
        row_of_slot[self.slots] = np.arange(len(self.slots))
        return row_of_slot[slots]

    def extended(self, values: Float[Tensor, "n k"], tokens: Int[Tensor, "n k"]) -> Extension:
        """Returns, for each sentence, the W most probable one-token extensions over all its
        hypotheses, where W is the number of beam slots per sentence.

        values, tokens: log-probabilities and ids of the k most probable next tokens of each
            unfinished hypothesis
        """
        sentences, width = self.totals.shape
        slots = self.device_slots
        candidates = self.totals.reshape(-1, 1)[slots] + values  # [n, k]
        if self.layout is not None:  # empty slots get candidates with log-probability -inf
            rows = candidates, tokens
            candidates = candidates.new_full((sentences * width, values.size(1)), -torch.inf)
            tokens = tokens.new_full(candidates.shape, EOS)  # [b·W, k]
            candidates[slots], tokens[slots] = rows
        totals, indices = candidates.view(sentences, -1).topk(width, -1)  # [b, W], indices of W·k
        return Extension(
            totals=totals,
            parents=indices // values.size(1),
            tokens=tokens.reshape(sentences, -1).gather(1, indices),
        )

    def advance(
        self, extension: HostExtension, parent_rows: np.ndarray, kept: list[int]
    ) -> tuple[BeamState, Int[Tensor, " m"]]:
        """Returns the beam state of the next step, and the parent row of each of its rows [m], i.e.
        the index of the extended row in the current state.

        extension: extended hypotheses in the beam slots
        parent_rows: row of the current state that each beam slot extends [b, W]
        kept: indices of the sentences whose search continues
        """
        totals = extension.open_totals[kept]  # [k, W] for k sentences
        is_open = totals > -np.inf
        parents = parent_rows[kept][is_open]  # [m]
        tokens = extension.tokens[kept][is_open]  # [m]
        beam = BeamState(
            sentences=[self.sentences[i] for i in kept],
            limits=self.limits[kept],
            totals=self.on_device(totals),
            slots=np.flatnonzero(is_open),
            prefixes=np.column_stack([self.prefixes[parents], tokens]),
            coverage=None if self.coverage is None else self.coverage[self.on_device(parents)],
        )
        return beam, torch.from_numpy(parents)


Extend = Callable[[BeamState, Tensor], Extension]
"""Type of functions that choose extensions: (beam state, log-probabilities [n, V] of the next
token) → content of the beam slots at the next step."""


def distinct(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the hypotheses without duplicates: one for each token sequence, in the order of the
    first occurrences."""
    return list({tuple(hypothesis.tokens): hypothesis for hypothesis in hypotheses}.values())


class FinishedHypotheses:
    """Collection of the finished hypotheses of each sentence during a search.

    sentences: number of sentences
    n_best: maximum number of hypotheses to return per sentence
    penalty: length and coverage penalties, which define the score of a finished hypothesis
    repeats: whether the returned hypotheses may contain the same tokens several times
    """

    def __init__(self, sentences: int, n_best: int, penalty: Penalty, repeats: bool) -> None:
        self.n_best = n_best
        self.repeats = repeats
        self.penalty = penalty
        self.hypotheses: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    def add(self, beam: BeamState, extension: HostExtension, parent_rows: np.ndarray) -> None:
        """Adds the extended hypotheses that end with EOS to the finished hypotheses.

        beam: state before the extension
        extension: extended hypotheses in the beam slots
        parent_rows: row of the state that each beam slot extends [b, W]
        """
        ended = extension.ended
        if not ended.any():
            return
        rows = parent_rows[ended]  # [e] for e finished hypotheses
        indices = ended.nonzero()[0].tolist()  # [e], sentence of each, 0 to b - 1
        penalties = (
            [0.0] * len(indices)
            if extension.penalties is None
            else extension.penalties[rows].tolist()
        )
        log_probs = extension.totals[ended].tolist()
        prefixes = beam.prefixes[rows, 1:].tolist()
        length = beam.prefixes.shape[1]  # tokens with EOS and without BOS
        for i, log_prob, tokens, penalty in zip(
            indices, log_probs, prefixes, penalties, strict=True
        ):
            self.hypotheses[beam.sentences[i]].append(
                Hypothesis(tokens, log_prob, self.penalty.score(log_prob, length, penalty))
            )

    def unsettled(self, beam: BeamState, extension: HostExtension) -> list[int]:
        """Returns the indices of the sentences whose search must continue, because an unfinished
        hypothesis can still enter the n-best list."""
        shortest = beam.prefixes.shape[1] + 1  # tokens of a hypothesis that ends at the next step
        best_open = extension.open_totals.max(-1).tolist()  # b values
        unsettled = []
        for i, (sentence, log_prob) in enumerate(zip(beam.sentences, best_open, strict=True)):
            longest = max(shortest, int(beam.limits[i]) + 1)
            bound = self.penalty.bound(log_prob, shortest, longest)
            if log_prob > -torch.inf and not self._is_settled(sentence, bound):
                unsettled.append(i)
        return unsettled

    def best(self) -> list[list[Hypothesis]]:
        """Returns the `n_best` finished hypotheses of each sentence, best first."""
        ranked = [sorted(hypotheses, key=lambda h: -h.score) for hypotheses in self.hypotheses]
        if not self.repeats:
            ranked = [distinct(hypotheses) for hypotheses in ranked]
        return [hypotheses[: self.n_best] for hypotheses in ranked]

    def _is_settled(self, sentence: int, bound: float) -> bool:
        """Returns whether a sentence has `n_best` finished hypotheses with scores of at least
        `bound`. Hypotheses with equal tokens count once."""
        hypotheses = distinct(self.hypotheses[sentence])
        scores = sorted((hypothesis.score for hypothesis in hypotheses), reverse=True)
        return len(scores) >= self.n_best and bound <= scores[self.n_best - 1]


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
    repeats: bool = False,
) -> list[list[Hypothesis]]:
    """Runs a breadth-first search. Returns up to `n_best` finished hypotheses of each sentence, the
    best score first.

    step: model interface, which returns the log-probabilities of the next token
    state: model state before the first token, one row per sentence
    requests: one request per sentence
    extend: function that chooses the next hypotheses
    width: number of beam slots per sentence
    starts: indices of the beam slots that contain an empty hypothesis at the start
    n_best: maximum number of hypotheses to return per sentence
    penalty: length and coverage penalties, which define the score of a finished hypothesis
    repeats: whether the returned hypotheses may contain the same tokens several times

    Raises ValueError for a coverage penalty if the model has no attention.
    """
    if not requests:
        return []
    if penalty.coverage and step.mask is None:
        raise ValueError("search.coverage needs a model with attention: set search.coverage=0")
    beam = BeamState.start(requests, width, starts, step.device)
    finished = FinishedHypotheses(len(requests), n_best, penalty, repeats)
    state = state.select(torch.from_numpy(beam.slots // width))
    for _ in range(max(request.max_length for request in requests) + 1):
        prediction, extension = _extend_all(step, state, beam, extend)
        if penalty.coverage:
            beam = beam.with_coverage(prediction.weights)
        # The host waits for a GPU only here.
        host = HostExtension(extension, beam.coverage_penalties(penalty, step.mask))
        parent_rows = beam.parent_rows(host)  # [b, W]
        finished.add(beam, host, parent_rows)
        unsettled = finished.unsettled(beam, host)
        if not unsettled:
            break
        if len(unsettled) < len(beam.sentences):
            step = step.keep(torch.tensor(unsettled))
        beam, rows = beam.advance(host, parent_rows, unsettled)  # rows: [m]
        state = prediction.state.select(rows)
    return finished.best()


def most_probable(beam: BeamState, log_probs: Float[Tensor, "n V"]) -> Extension:
    """Returns, for each sentence, the W most probable one-token extensions over all its hypotheses,
    where W is the number of beam slots per sentence.

    log_probs: log-probabilities of all next tokens for each unfinished hypothesis
    """
    # At most W extensions of one hypothesis can be kept.
    return beam.extended(*top_k(log_probs, min(beam.width, log_probs.size(-1))))


def _extend_all(
    step: Step, state: SearchState, beam: BeamState, extend: Extend
) -> tuple[Prediction | RankedPrediction, Extension]:
    """Extends all hypotheses of a beam by one token. Returns the model's prediction of the
    next tokens, and the extended hypotheses in the beam slots."""
    last = torch.from_numpy(beam.prefixes[:, -1])  # [n]
    if extend is most_probable:  # needs only the W most probable tokens of each row
        best = ranked(step, last, state, beam.layout, beam.width)
        return best, beam.extended(*beam.only_eos_at_limit(best))
    prediction = step(last, state, beam.layout)
    beam.allow_only_eos_at_limit(prediction.log_probs)
    return prediction, extend(beam, prediction.log_probs)
