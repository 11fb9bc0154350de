"""Ancestral sampling: each word is drawn from the model's distribution, which can be sharpened or
truncated.

    p_v ∝ exp(l_v / temperature). A word is kept if it is among the `top_k` most probable, belongs
    to the smallest set with probability ≥ `top_p` (Holtzman et al. 2020), and has a probability of
    at least `epsilon` (Hewitt et al. 2022). The most probable word is always kept.

The random numbers of a sentence depend only on `seed` and the sentence, so neither the batch nor
the order matters.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.ranges import Count, Positive, Ratio, Width
from nmt.search.breadth_first import BeamState, Extension, breadth_first_search
from nmt.search.constrained import refuse_required
from nmt.search.penalty import Penalty


class Sample:
    """Samples, the most probable first; the score is the model's log-probability.

    n_best: samples per sentence
    temperature: divisor of the log-probabilities
    top_k: number of most probable words to draw from (0: all)
    top_p: nucleus sampling: probability of the smallest set of tokens to draw from
    epsilon: tokens with a smaller probability are not drawn
    seed: random seed, combined with the seed of the request
    """

    repeats = True
    """Samples may repeat; duplicates are kept."""

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
        self.n_best = n_best
        self.temperature = temperature
        self.seed = seed
        self.top_k = top_k
        self.top_p = top_p
        self.epsilon = epsilon

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "sample")
        draws = []
        for request in requests:
            generator = np.random.default_rng([self.seed, request.seed])
            numbers = generator.random((request.max_length + 1, self.n_best))
            draws.append(torch.from_numpy(numbers))
        return breadth_first_search(
            step,
            state,
            requests,
            partial(self._extend, draws),
            width=self.n_best,
            starts=range(self.n_best),
            n_best=self.n_best,
            penalty=Penalty(),
        )

    def _extend(self, draws: list[Tensor], beam: BeamState, log_probs: Tensor) -> Extension:
        sentences, width = beam.totals.shape
        step = beam.prefixes.size(1) - 1
        # [b·W], one for each slot; sentences at their limit end whatever the number
        numbers = torch.cat([draws[i][min(step, len(draws[i]) - 1)] for i in beam.sentences])
        numbers = numbers.to(log_probs.device)[beam.slots]  # [n], uniform in [0, 1)
        # In float32, the sums of a large vocabulary would be too coarse.
        cumulative = self.distribution(log_probs).cumsum(-1, dtype=torch.float64)  # [n, V]
        target = numbers.unsqueeze(1) * cumulative[:, -1:]  # [n, 1]
        sampled = torch.searchsorted(cumulative, target, right=True)  # [n, 1]
        sampled = sampled.clamp(max=log_probs.size(1) - 1)
        tokens = sampled.new_zeros(sentences * width)  # [b·W]
        tokens[beam.slots] = sampled.squeeze(1)
        totals = beam.totals.flatten()  # [b·W]
        totals[beam.slots] += log_probs.gather(1, sampled).squeeze(1)
        return Extension(
            totals=totals.view(sentences, width),
            parents=torch.arange(width, device=tokens.device).expand(sentences, width),
            tokens=tokens.view(sentences, width),
        )

    def distribution(self, log_probs: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
        """Probabilities of the words that may be drawn, not renormalised; 0 for the others.

        log_probs: log-probabilities of the next words
        """
        p = torch.softmax(log_probs / self.temperature, -1)  # [n, V]
        if not self.epsilon and not self.top_k and self.top_p == 1:
            return p
        allowed = p >= self.epsilon  # [n, V]
        if self.top_k or self.top_p < 1:
            ranked, order = p.sort(-1, descending=True)  # [n, V], [n, V]
            # A word is allowed if those before it have less than `top_p`; the first one always is.
            allowed_by_rank = ranked.cumsum(-1) - ranked < self.top_p
            if self.top_k:
                allowed_by_rank[:, self.top_k :] = False
            allowed &= torch.zeros_like(allowed).scatter_(1, order, allowed_by_rank)
        # The most probable word always stays: `epsilon` might rule out all.
        return p * allowed.scatter_(1, p.argmax(-1, keepdim=True), True)
