"""Minimum Bayes risk: of many candidates, the one that is most similar to all others (Kumar & Byrne
2004; with samples as in Eikema & Aziz 2020).

    score(y) = Σ_{y'} p(y') utility(y, y')

p is 1/N for N samples; for a beam, it is proportional to the model's probability.

Utilities compare texts, by sacreBLEU's sentence chrF or BLEU, so the choice is made after
detokenisation, in `rerank`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from nmt.foundation.interfaces import Hypothesis, Request, Search, SearchState, Step
from nmt.foundation.ranges import Count, Positive, Ratio, Width
from nmt.metric import similarity
from nmt.search.beam import Beam
from nmt.search.sample import Sample

EPSILON = 0.02


class MBR:
    """Hypotheses with the highest expected utility, which is their score (0 to 100).

    candidates: hypotheses per sentence to choose from
    source: sampled (nmt/search/sample.py), or found by a beam of that width
    utility: sentence metric that compares two texts
    n_best: number of different hypotheses returned
    temperature, epsilon, seed: options of the samples

    Raises ValueError for options of samples with a beam, or more results than candidates.
    """

    def __init__(
        self,
        *,
        candidates: Width = 16,
        source: Literal["sample", "beam"] = "sample",
        utility: Literal["chrf", "bleu"] = "chrf",
        n_best: Width = 1,
        temperature: Positive = 1.0,
        epsilon: Ratio = EPSILON,
        seed: Count = 1,
    ) -> None:
        if n_best > candidates:
            raise ValueError(
                f"search.n_best={n_best} is more than search.candidates={candidates} can give"
            )
        if source == "beam" and (temperature, epsilon) != (1.0, EPSILON):
            raise ValueError(
                "search.temperature and search.epsilon are for samples: choose search.source=sample"
            )
        self.n_best = n_best
        self.utility = utility
        self.weighted = source == "beam"
        self.search: Search = Sample(
            n_best=candidates, temperature=temperature, epsilon=epsilon, seed=seed
        )
        if source == "beam":
            self.search = Beam(width=candidates, n_best=candidates)

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        """All candidates; `rerank` chooses."""
        return self.search(step, state, requests)

    def rerank(
        self, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
    ) -> list[tuple[Hypothesis, str]]:
        """The best of one sentence's candidates with their texts, each text once.

        hypotheses: all candidates
        texts: their texts
        """
        weights: defaultdict[str, float] = defaultdict(float)
        for hypothesis, text in zip(hypotheses, texts, strict=True):
            weights[text] += (
                math.exp(hypothesis.log_prob - hypotheses[0].log_prob) if self.weighted else 1.0
            )
        utility = similarity(self.utility)  # 0 to 100
        first = {
            text: hypothesis
            for hypothesis, text in reversed(list(zip(hypotheses, texts, strict=True)))
        }
        whole = sum(weights.values())
        scored = [
            (
                replace(
                    first[text],
                    score=sum(weights[other] * utility(text, other) for other in weights) / whole,
                ),
                text,
            )
            for text in weights
        ]
        return sorted(scored, key=lambda pair: -pair[0].score)[: self.n_best]
