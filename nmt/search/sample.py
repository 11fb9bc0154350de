"""Ancestral sampling: each word is drawn from the model's distribution, which can be sharpened or truncated.

    p_v ∝ exp(l_v / temperature). A word is kept if it is among the `top_k` most probable, belongs to the smallest set
    with probability ≥ `top_p` (Holtzman et al. 2020), and has a probability of at least `epsilon` (Hewitt et al. 2022).
    The most probable word is always kept.

The random numbers of a sentence depend only on `seed` and the sentence, so neither the batch nor the order matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.ranges import Count, Positive, Ratio, Width
from nmt.search.breadth import Extended, Frontier, explore
from nmt.search.constrained import refuse_required
from nmt.search.penalty import Penalty


class Sample:
    """`n_best` samples per sentence, the most probable first; the score is the model's log-probability."""

    repeats = True
    """Drawing the same twice says something: it is probable."""

    def __init__(
        self,
        *,
        n_best: Width = 1,
        temperature: Positive = 1.0,
        top_k: Count = 0,
        top_p: Ratio = 1.0,
        epsilon: Ratio = 0.0,
        seed: Count = 1,
    ) -> None:
        self.n_best, self.temperature, self.seed = n_best, temperature, seed
        self.top_k, self.top_p, self.epsilon = top_k, top_p, epsilon

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "sample")
        draws = [
            torch.from_numpy(
                np.random.default_rng([self.seed, r.seed]).random((r.max_length + 1, self.n_best))
            )
            for r in requests
        ]
        extend, starts = partial(self._extend, draws), range(self.n_best)
        return explore(
            step,
            state,
            requests,
            extend,
            width=self.n_best,
            starts=starts,
            n_best=self.n_best,
            penalty=Penalty(),
        )

    def _extend(self, draws: list[Tensor], frontier: Frontier, log_probs: Tensor) -> Extended:
        sentences, width = frontier.totals.shape
        step = frontier.prefixes.size(1) - 1
        numbers = torch.cat([draws[i][min(step, len(draws[i]) - 1)] for i in frontier.alive]).to(
            log_probs.device
        )
        cumulative = self.distribution(log_probs).cumsum(-1, dtype=torch.float64)
        target = numbers[frontier.live].unsqueeze(1) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, target, right=True).clamp(max=log_probs.size(1) - 1)
        words = drawn.new_zeros(sentences * width)
        words[frontier.live] = drawn.squeeze(1)
        totals = frontier.totals.flatten()
        totals[frontier.live] += log_probs.gather(1, drawn).squeeze(1)
        places = torch.arange(width, device=words.device).expand(sentences, width)
        return totals.view(sentences, width), places, words.view(sentences, width)

    def distribution(self, log_probs: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
        """The distribution that words are drawn from: the kept probabilities, not renormalised."""
        p = torch.softmax(log_probs / self.temperature, -1)
        if not self.epsilon and not self.top_k and self.top_p == 1:
            return p
        kept = p >= self.epsilon
        if self.top_k or self.top_p < 1:
            ranked, order = p.sort(-1, descending=True)
            high = ranked.cumsum(-1) - ranked < self.top_p
            if self.top_k:
                high[:, self.top_k :] = False
            kept &= torch.zeros_like(kept).scatter_(1, order, high)
        return p * kept.scatter_(1, p.argmax(-1, keepdim=True), True)
