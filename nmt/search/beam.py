"""Beam search with length penalties and exact early stopping.

At each step every live hypothesis of a sentence is extended by every word, and the best `width` extensions (minus the
places that finished hypotheses hold already) survive; those that end in EOS are finished. So width 1 is greedy search,
and a beam as wide as there are hypotheses is exhaustive search. Only live hypotheses are rows of the next step.

A sentence ends when no live hypothesis can enter its n best any more: log-probabilities only fall, so one with
log-probability P can never score more than P / penalty(longest possible length).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nmt.interfaces import BOS, EOS, Hypothesis, Layout, Step
from nmt.ranges import NonNegative, Size
from nmt.search.penalty import PenaltyName, penalty
from nmt.search.top_k import top_k


class Beam:
    """`width` hypotheses a sentence, the `n_best` of them returned; length penalty none, average or wu with `alpha`."""

    def __init__(
        self,
        *,
        width: Size = 5,
        n_best: Size = 1,
        length_penalty: PenaltyName = "average",
        alpha: NonNegative = 0.6,
    ) -> None:
        if n_best > width:
            raise ValueError(f"search.n_best={n_best} is more than search.width={width} hypotheses can give")
        self.width, self.n_best, self.length_penalty, self.alpha = width, n_best, length_penalty, alpha

    @torch.inference_mode()
    def __call__(self, step: Step, state: Any, max_lengths: Sequence[int]) -> list[list[Hypothesis]]:
        if not max_lengths:
            return []
        width, device = self.width, torch.device(getattr(step, "device", "cpu"))
        finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
        alive = list(range(len(max_lengths)))
        limits, bounds = torch.tensor(max_lengths, device=device), set(max_lengths)
        # A place without a live hypothesis has log-probability -inf and no row in the state; at first each sentence has one.
        totals = torch.full((len(alive), width), -torch.inf, device=device, dtype=torch.float64)
        totals[:, 0] = 0.0
        words = torch.full((len(alive),), BOS, device=device)
        prefixes = words.unsqueeze(1)  # the words so far of each row, BOS first
        done = [False] * len(alive)
        for length in range(max(max_lengths) + 1):
            live = (totals > -torch.inf).flatten().nonzero().squeeze(1)
            layout = None if len(live) == totals.numel() else Layout(width, live)
            log_probs, state = step(words, state, layout)
            row_of = torch.zeros(totals.numel(), dtype=torch.long, device=device)
            row_of[live] = torch.arange(len(live), device=device)
            at_limit = (limits == length).repeat_interleave(width)[live] if length in bounds else None
            totals, parents, words = self._extend(log_probs, totals, live, at_limit)
            rows = row_of[torch.arange(len(alive), device=device).unsqueeze(1) * width + parents]
            ended = (words == EOS) & (totals > -torch.inf)
            if ended.any():
                self._finish(ended.nonzero()[:, 0].tolist(), totals[ended], prefixes[rows[ended]], alive, finished)
                totals = totals.masked_fill(ended, -torch.inf)
            best_live = totals.max(-1).values.tolist()
            for i, sentence in enumerate(alive):
                done[i] = done[i] or self._settled(finished[sentence], best_live[i], max_lengths[sentence])
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
        return [sorted(hypotheses, key=lambda h: -h.score)[: self.n_best] for hypotheses in finished]

    def _extend(
        self, log_probs: Tensor, totals: Tensor, live: Tensor, at_limit: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best `width` extensions of each sentence: log-probabilities, parent places and words, each [b width].

        log_probs [n V] belong to the live places; rows `at_limit` can only be extended by EOS.
        """
        sentences, width = totals.shape
        per_place = min(width, log_probs.size(-1))
        best, words = top_k(log_probs, per_place)  # no more than `width` of one place can survive
        if at_limit is not None:
            best[at_limit], words[at_limit] = -torch.inf, EOS
            best[at_limit, 0] = log_probs[at_limit, EOS]
        candidates = totals.new_full((sentences * width, per_place), -torch.inf)
        candidates[live] = totals.view(-1, 1)[live] + best
        chosen = words.new_full(candidates.shape, EOS)
        chosen[live] = words
        totals, places = candidates.view(sentences, -1).topk(width, -1)
        return totals, places // per_place, chosen.view(sentences, -1).gather(1, places)

    def _finish(
        self, rows: list[int], log_probs: Tensor, prefixes: Tensor, alive: list[int], finished: list[list[Hypothesis]]
    ) -> None:
        """Adds hypotheses that have just ended: the row of their sentence, log-probability and words (BOS first)."""
        divisor = penalty(self.length_penalty, self.alpha, prefixes.size(1))  # EOS in place of BOS
        for row, log_prob, tokens in zip(rows, log_probs.tolist(), prefixes[:, 1:].tolist(), strict=True):
            finished[alive[row]].append(Hypothesis(tokens, log_prob, log_prob / divisor))

    def _settled(self, finished: list[Hypothesis], best_live: float, max_length: int) -> bool:
        """Whether no live hypothesis can become one of the n best."""
        if best_live == -float("inf"):
            return True
        if len(finished) < self.n_best:
            return False
        worst = sorted((h.score for h in finished), reverse=True)[self.n_best - 1]
        return best_live / penalty(self.length_penalty, self.alpha, max_length + 1) <= worst
