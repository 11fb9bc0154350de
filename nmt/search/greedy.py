"""Greedy search: chooses the most probable token at every decoder step."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from nmt.foundation.interfaces import (
    BOS,
    EOS,
    Hypothesis,
    Request,
    SearchState,
    Step,
    to_device,
    to_host,
)
from nmt.search.constrained import refuse_required
from nmt.search.penalty import Penalty
from nmt.search.shortcuts import RankingStep, ranked, whole_search

STRIDE = 4
"""Number of decoder steps between two transfers of tokens from a GPU to the host, which then checks
for EOS. Decoding of a finished sentence therefore continues for up to STRIDE - 1 steps."""


class Greedy:
    """Greedy search, which appends the most probable token until EOS. The score of a hypothesis is
    its log-probability."""

    @torch.inference_mode()
    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "greedy")
        whole = whole_search(step, state, requests, width=1, n_best=1, penalty=Penalty())
        if whole is not None:
            return whole
        limits = np.array([request.max_length for request in requests], dtype=np.int64)
        alive = np.arange(len(requests))  # unfinished sentences, one row each
        last = np.full(len(requests), BOS)  # [b], last token of each unfinished sentence
        totals = np.zeros(len(requests))  # [sentences], log-probabilities
        tokens: list[list[int]] = [[] for _ in requests]
        length = 0
        longest = int(limits.max(initial=-1))
        # Any other `Step`, such as `Constrained`, reads the tokens on the CPU.
        is_ahead = step.device.type != "cpu" and isinstance(step, RankingStep)
        while length <= longest:
            count = min(STRIDE if is_ahead else 1, longest + 1 - length)
            extended = _extend(step, state, last, limits[alive] - length, count)
            state = extended.state
            length += count
            going = np.ones(len(alive), dtype=bool)  # [b]
            # [b], [b]
            for step_words, step_log_probs in zip(extended.tokens, extended.log_probs, strict=True):
                totals[alive[going]] += step_log_probs[going]
                going &= step_words != EOS
                pairs = zip(alive[going].tolist(), step_words[going].tolist(), strict=True)
                for sentence, word in pairs:
                    tokens[sentence].append(word)
            if not going.any():
                break
            last = extended.tokens[-1][going]
            if not going.all():
                rows = torch.from_numpy(np.flatnonzero(going))  # rows of the next step
                step = step.keep(rows)
                state = state.select(rows)
                alive = alive[going]
        return [
            [Hypothesis(words, total, total)]
            for words, total in zip(tokens, totals.tolist(), strict=True)
        ]


class _Extended(NamedTuple):
    """Result of several greedy decoder steps for b rows (unfinished sentences).

    tokens: ids of the chosen tokens [steps, b]
    log_probs: log-probabilities of the chosen tokens [steps, b]
    state: decoder state after the last step
    """

    tokens: np.ndarray
    log_probs: np.ndarray
    state: SearchState


def _extend(
    step: Step, state: SearchState, last: np.ndarray, left: np.ndarray, count: int
) -> _Extended:
    """Extends each row (unfinished sentence) by its most probable token at each of several decoder
    steps. A row at its length limit is extended by EOS instead.

    last: last token of each row [b]
    left: number of tokens, EOS not counted, by which each row may still be extended [b]
    count: number of decoder steps
    """
    chosen: list[torch.Tensor] = []  # [b, 1] each
    log_probs: list[torch.Tensor] = []  # [b, 1] each
    for i in range(count):
        tokens = chosen[-1][:, 0] if chosen else torch.from_numpy(last)  # [b]
        prediction = ranked(step, tokens, state, None, 1)
        state = prediction.state
        chosen.append(prediction.tokens)
        log_probs.append(prediction.log_probs)
        if i in left:
            at_limit = to_device(torch.from_numpy(left == i), chosen[-1].device).unsqueeze(1)
            chosen[-1] = chosen[-1].masked_fill(at_limit, EOS)
            log_probs[-1] = torch.where(at_limit, prediction.ends.unsqueeze(1), log_probs[-1])
    arrays = to_host(*chosen, *log_probs)  # [b, 1] each
    return _Extended(
        tokens=np.concatenate(arrays[:count], 1).T,
        log_probs=np.concatenate(arrays[count:], 1).T,
        state=state,
    )
