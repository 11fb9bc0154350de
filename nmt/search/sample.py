"""Ancestral sampling: draws each token from the model's distribution, which can be sharpened or
truncated.

    p_v ∝ exp(l_v / temperature)

l_v is the log-probability of token v. The most probable token is always kept. Any other token
must be one of the `top_k` most probable tokens, belong to the smallest set with total probability
≥ `top_p` (Holtzman et al. 2020), and have a probability of at least `epsilon` (Hewitt et al. 2022).

The random numbers of a sentence depend only on `seed` and on the seed of its request, not on the
batch or the order of the sentences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from nmt.foundation.interfaces import Hypothesis, Request, SearchState, Step
from nmt.foundation.parameter_types import check_arguments
from nmt.foundation.ranges import Count, Positive, Ratio, Width
from nmt.search.beam_state import BeamState, Extension
from nmt.search.breadth_first import breadth_first_search
from nmt.search.constrained import refuse_required
from nmt.search.penalty import Penalty

LEAST_TEMPERATURE = 1e-30
"""Lowest temperature in use, because lower ones could become 0 in float32."""


@dataclass(kw_only=True, eq=False)
class Sample:
    """Sampling search. The score of a sample is its log-probability under the model. Samples are
    returned best first.

    n_best: number of samples per sentence
    temperature: divisor of the log-probabilities; values below 1 sharpen the distribution
    top_k: number of most probable tokens to sample from; 0 samples from all tokens
    top_p: probability mass of the tokens to sample from (nucleus sampling), 0 to 1
    epsilon: minimum probability of tokens that may be sampled, 0 to 1
    seed: random seed, combined with the seed of each request
    """

    repeats = True
    """Whether the n-best list may contain the same hypothesis several times."""

    n_best: Width = 1
    temperature: Positive = 1.0
    top_k: Count = 0
    top_p: Ratio = 1.0
    epsilon: Ratio = 0.0
    seed: Count = 1

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(Sample)}
        check_arguments("search", Sample, **values)

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        refuse_required(requests, "sample")
        # Random numbers of each sentence [max_length + 1, n_best], uniform in [0, 1)
        draws = [
            np.random.default_rng([self.seed, request.seed]).random(
                (request.max_length + 1, self.n_best)
            )
            for request in requests
        ]
        return breadth_first_search(
            step,
            state,
            requests,
            partial(self._extend, draws),
            width=self.n_best,
            starts=range(self.n_best),
            n_best=self.n_best,
            penalty=Penalty(),
            repeats=True,
        )

    def _extend(self, draws: list[np.ndarray], beam: BeamState, log_probs: Tensor) -> Extension:
        sentences, width = beam.totals.shape
        step = beam.prefixes.shape[1] - 1
        # [b·W], one random number per slot; unused for sentences at their length limit
        drawn = np.concatenate([draws[i][min(step, len(draws[i]) - 1)] for i in beam.sentences])
        slots = beam.device_slots
        numbers = beam.on_device(drawn)[slots]  # [n]
        # In float32, sums over a large vocabulary are too inaccurate.
        cumulative = self.distribution(log_probs).cumsum(-1, dtype=torch.float64)  # [n, V]
        target = numbers.unsqueeze(1) * cumulative[:, -1:]  # [n, 1]
        sampled = torch.searchsorted(cumulative, target, right=True)  # [n, 1]
        sampled = sampled.clamp(max=log_probs.size(1) - 1)
        tokens = sampled.new_zeros(sentences * width)  # [b·W]
        tokens[slots] = sampled.squeeze(1)
        totals = beam.totals.flatten()  # [b·W]
        totals[slots] += log_probs.gather(1, sampled).squeeze(1)
        return Extension(
            totals=totals.view(sentences, width),
            parents=torch.arange(width, device=tokens.device).expand(sentences, width),
            tokens=tokens.view(sentences, width),
        )

    def distribution(self, log_probs: Float[Tensor, "n V"]) -> Float[Tensor, "n V"]:
        """Returns the probabilities of the tokens that may be sampled, not renormalised, and 0 for
        all other tokens.

        log_probs: log-probabilities of the next token
        """
        # The largest quotient is 0, however small the temperature is.
        differences = log_probs - log_probs.amax(-1, keepdim=True)  # [n, V]
        # Higher temperatures would divide the -inf of excluded tokens by infinity.
        temperature = min(max(self.temperature, LEAST_TEMPERATURE), 1 / LEAST_TEMPERATURE)
        p = torch.softmax(differences / temperature, -1)  # [n, V]
        if not self.epsilon and not self.top_k and self.top_p == 1:
            return p
        # The most probable token is always allowed; `epsilon` might rule out all tokens.
        allowed = p >= p.amax(-1, keepdim=True).clamp(max=self.epsilon)  # [n, V]
        if self.top_k or self.top_p < 1:
            ranked, order = p.sort(-1, descending=True)  # [n, V], [n, V]
            # A token is allowed if all more probable tokens together have less than `top_p`.
            allowed_by_rank = ranked.cumsum(-1) - ranked < self.top_p
            allowed_by_rank[:, 0] = True  # also with top_p=0
            if self.top_k:
                allowed_by_rank[:, self.top_k :] = False
            allowed &= torch.zeros_like(allowed).scatter_(1, order, allowed_by_rank)
        return p * allowed
