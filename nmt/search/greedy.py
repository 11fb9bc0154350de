"""Greedy search: the most probable word at every step."""

from collections.abc import Sequence

import torch

from nmt.foundation.interfaces import BOS, EOS, Hypothesis, Request, SearchState, Step
from nmt.search.constrained import refuse_required


class Greedy:
    """Takes the most probable word until EOS. The score is the log-probability."""

    n_best = 1

    @torch.inference_mode()
    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "greedy")
        sentences, device = len(requests), step.device
        limits = torch.tensor([request.max_length for request in requests], device=device)
        alive = torch.arange(
            sentences, device=device
        )  # the sentences still being written, a row each
        words = torch.full((sentences,), BOS, device=device)
        totals = torch.zeros(sentences, device=device, dtype=torch.float64)
        tokens: list[list[int]] = [[] for _ in range(sentences)]
        for length in range(max((request.max_length for request in requests), default=-1) + 1):
            prediction = step(words, state)
            log_probs, state = prediction.log_probs, prediction.state
            best, words = log_probs.max(-1)
            at_end = limits[alive] == length  # only EOS is left at the limit
            best, words = (
                torch.where(at_end, log_probs[:, EOS], best),
                words.masked_fill(at_end, EOS),
            )
            totals[alive] += best
            going = words != EOS
            for row, word in zip(alive.tolist(), words.tolist(), strict=True):
                if word != EOS:
                    tokens[row].append(word)
            if not going.all():
                rows = going.nonzero().squeeze(1)
                if not len(rows):
                    break
                step, state = step.keep(rows), state.select(rows)
                alive, words = alive[rows], words[rows]
        scores = totals.tolist()
        return [[Hypothesis(tokens[i], scores[i], scores[i])] for i in range(sentences)]
