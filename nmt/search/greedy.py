"""Greedy search: chooses the most probable token at every decoder step."""

from collections.abc import Sequence

import numpy as np
import torch

from nmt.foundation.interfaces import (
    BOS,
    EOS,
    Hypothesis,
    Request,
    SearchState,
    Step,
    to_host,
)
from nmt.search.constrained import refuse_required
from nmt.search.penalty import Penalty
from nmt.search.shortcuts import ranked, whole_search


class Greedy:
    """Greedy search, which appends the most probable token until EOS. The score of a hypothesis is
    its log-probability."""

    n_best = 1

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
        words = np.full(len(requests), BOS)  # [b], last token of each unfinished sentence
        totals = np.zeros(len(requests))  # [sentences], log-probabilities
        tokens: list[list[int]] = [[] for _ in requests]
        for length in range(max((request.max_length for request in requests), default=-1) + 1):
            prediction = ranked(step, torch.from_numpy(words), state, None, 1)
            state = prediction.state
            best = prediction.log_probs[:, 0], prediction.tokens[:, 0]  # [b] each
            *best_arrays, ends = to_host(*best, prediction.ends)
            at_end = limits[alive] == length  # at the limit, only EOS is allowed
            words = np.where(at_end, EOS, best_arrays[1])
            log_probs = np.where(at_end, ends, best_arrays[0])
            totals[alive] += log_probs
            going = words != EOS  # [b]
            for sentence, word in zip(alive[going].tolist(), words[going].tolist(), strict=True):
                tokens[sentence].append(word)
            if not going.all():
                # rows of the next step
                rows = torch.from_numpy(np.flatnonzero(going))
                if not len(rows):
                    break
                step = step.keep(rows)
                state = state.select(rows)
                alive = alive[going]
                words = words[going]
        scores = totals.tolist()
        return [[Hypothesis(tokens[i], scores[i], scores[i])] for i in range(len(requests))]
