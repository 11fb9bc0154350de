"""Minimum Bayes risk decoding: chooses the candidate translation that is most similar to all other
candidates (Kumar & Byrne 2004; with samples as in Eikema & Aziz 2020).

    score(y) = Σ_{y'} p(y') utility(y, y')

y and y' are candidates. p is 1/N for N samples; for beam search, p is proportional to the model's
probability. The utility is sacreBLEU's sentence-level chrF or BLEU of two strings, so `rerank`
chooses after detokenisation.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from nmt.foundation.interfaces import Hypothesis, Request, Search, SearchState, Step
from nmt.foundation.parameter_types import check_arguments
from nmt.foundation.ranges import Count, Positive, Ratio, Width
from nmt.metric import similarity
from nmt.search.beam import Beam
from nmt.search.constrained import refuse_required
from nmt.search.sample import Sample

EPSILON = 0.02
"""Default value of `epsilon`, the minimum probability of a token that may be sampled."""


class MBR:
    """Minimum Bayes risk decoding. The score of a hypothesis is its expected utility, 0 to 100.

    candidates: number of candidate hypotheses per sentence
    source: origin of the candidates: "sample" (ancestral sampling), or "beam" for a beam of width
        `candidates`
    utility: sentence-level metric that compares two strings: chrf or bleu
    n_best: number of distinct hypotheses to return per sentence
    temperature, epsilon, seed: options of the sampling search (`Sample`)

    Raises ValueError if sampling options are set for a beam, or if `n_best` is larger than
    `candidates`.
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
        check_arguments(
            "search", MBR, candidates=candidates, source=source, utility=utility, n_best=n_best
        )
        if n_best > candidates:
            raise ValueError(
                f"search.n_best={n_best} must be at most search.candidates={candidates}"
            )
        if source == "beam" and (temperature, epsilon, seed) != (1.0, EPSILON, 1):
            raise ValueError(
                "search.temperature, search.epsilon and search.seed need search.source=sample"
            )
        self.n_best = n_best
        self.utility = utility
        self.search: Search = Sample(
            n_best=candidates, temperature=temperature, epsilon=epsilon, seed=seed
        )
        if source == "beam":
            self.search = Beam(width=candidates, n_best=candidates)

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        """Returns all candidate translations of each sentence, from which `rerank` chooses the
        best."""
        if isinstance(self.search, Sample):
            refuse_required(requests, "mbr search.source=sample")
        return self.search(step, state, requests)

    def rerank(
        self, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
    ) -> list[tuple[Hypothesis, str]]:
        """Returns the `n_best` candidates of one sentence with the highest expected utility, each
        with its string. Candidates with equal strings are merged.

        hypotheses: all candidates of the sentence
        texts: detokenised string of each candidate
        """
        weights: defaultdict[str, float] = defaultdict(float)
        highest = max(hypothesis.log_prob for hypothesis in hypotheses)
        for hypothesis, text in zip(hypotheses, texts, strict=True):
            # Samples are equally probable.
            is_sample = isinstance(self.search, Sample)
            weights[text] += 1.0 if is_sample else math.exp(hypothesis.log_prob - highest)
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
