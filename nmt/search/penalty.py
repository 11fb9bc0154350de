"""The score of a finished hypothesis Y of n words (EOS counted) and log-probability P:

    score(Y) = P / penalty(n)  or  P + α n,   plus  β Σ_s log min(1, Σ_t a_ts)

none         P
average      P / n
power        P / n^α                      Marian's and fairseq's normalisation
wu           P / ((5 + n) / 6)^α          Wu et al. 2016, eq. 14
reward       P + α n                      a reward for every word
coverage     the last term (Wu et al. 2016, eq. 14): a_ts is the attention of word t to source
             position s, so β > 0 prefers hypotheses that have attended to every position. It is
             never above 0
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

PenaltyName = Literal["none", "average", "power", "wu", "reward"]
ALPHA = 0.6
UNSEEN = 1e-6
"""Lower bound on the total attention of a source position, so that a position with 0 does not cost
infinitely much."""


@dataclass(frozen=True)
class Penalty:
    """Length penalty and coverage term.

    name: formula of the length penalty
    alpha: α
    coverage: β

    Raises ValueError if `alpha` is set but not used.
    """

    name: PenaltyName = "none"
    alpha: float = ALPHA
    coverage: float = 0.0

    def __post_init__(self) -> None:
        if self.alpha != ALPHA and self.name in ("none", "average"):
            raise ValueError(
                f"search.alpha={self.alpha:g}: search.length_penalty={self.name} does not use it; "
                "choose power, wu or reward"
            )

    def score(self, log_prob: float, words: int, uncovered: float = 0.0) -> float:
        """Score of a finished hypothesis.

        log_prob: its log-probability
        words: number of its words, EOS included
        uncovered: its coverage term, result of `of_coverage`
        """
        if self.name == "reward":
            return log_prob + self.alpha * words + uncovered
        divisors = {
            "average": float(words),
            "power": words**self.alpha,
            "wu": ((5 + words) / 6) ** self.alpha,
        }
        return log_prob / divisors.get(self.name, 1.0) + uncovered

    def bound(self, log_prob: float, shortest: int, longest: int) -> float:
        """Upper bound on the scores of all hypotheses that continue an unfinished one.

        Log-probabilities only fall, the coverage term is at most 0, and every score is monotone in
        the length, so that one of both ends is the bound.

        log_prob: log-probability so far
        shortest, longest: smallest and largest number of words of a finished hypothesis
        """
        return max(self.score(log_prob, shortest), self.score(log_prob, longest))

    def of_coverage(
        self, covered: Float[Tensor, "n S"], mask: Bool[Tensor, "n S"]
    ) -> Float[Tensor, " n"]:
        """Coverage term of each row.

        covered: total attention that it has given to each source position
        mask: real source positions
        """
        logs = covered.clamp(UNSEEN, 1.0).log().masked_fill(~mask, 0.0)  # [n, S]
        return self.coverage * logs.sum(-1, dtype=torch.float64)
