"""State of a breadth-first search: the unfinished hypotheses of a batch, and their extensions.

Dimensions: b unfinished sentences, W beam slots per sentence, n rows (unfinished hypotheses), L
tokens, vocabulary size V, source length S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from nmt.foundation.interfaces import (
    BOS,
    EOS,
    Layout,
    RankedPrediction,
    Request,
    to_device,
    to_host,
)
from nmt.search.penalty import Penalty


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

    penalties: coverage penalty of each extended row (hypothesis), which includes the attention of
        this step [n]; None if the search has no coverage penalty
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

    def only_eos_at_limit(self, prediction: RankedPrediction) -> None:
        """Replaces the most probable next tokens by EOS, in place, for hypotheses that have reached
        their length limit."""
        rows = self.at_limit
        if rows is not None:
            # Unlike `log_probs[rows] = -inf`, `index_fill_` does not make the host wait for a GPU.
            prediction.log_probs.index_fill_(0, rows, -torch.inf)
            prediction.log_probs[rows, 0] = prediction.ends[rows]
            prediction.tokens.index_fill_(0, rows, EOS)

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
