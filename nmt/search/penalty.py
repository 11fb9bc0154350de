"""Scores of finished hypotheses, with length and coverage penalties.

P is the log-probability of a hypothesis with n tokens, EOS included. `length_penalty` selects the
score, with α = `alpha`:

none         P
average      P / n
power        P / n^α                      normalisation of Marian and fairseq
wu           P / ((5 + n) / 6)^α          Wu et al. 2016, eq. 14
reward       P + α n                      constant reward per token

The coverage penalty adds β Σ_s log min(1, Σ_t a_ts) (Wu et al. 2016, eq. 14), with β = `coverage`
and the attention a_ts of token t to source position s. The coverage penalty is at most 0 and
favours hypotheses that attend to every source position.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

PenaltyName = Literal["none", "average", "power", "wu", "reward"]
"""Name of a length penalty, which selects the formula of the score."""
ALPHA = 0.6
"""Default value of α."""
UNSEEN = 1e-6
"""Lower bound of the total attention to a source position, so that the logarithm in the coverage
penalty is finite."""


@dataclass(frozen=True)
class Penalty:
    """Score of finished hypotheses, with a length penalty and a coverage penalty.

    name: name of the length penalty
    alpha: α, exponent or reward of the length penalty
    coverage: β, weight of the coverage penalty; 0 disables it

    Raises ValueError if `alpha` is set, but the length penalty does not use it.
    """

    name: PenaltyName = "none"
    alpha: float = ALPHA
    coverage: float = 0.0

    def __post_init__(self) -> None:
        if self.alpha != ALPHA and self.name in ("none", "average"):
            raise ValueError(
                f"search.alpha={self.alpha:g} has no effect with "
                f"search.length_penalty={self.name}: choose search.length_penalty=power, wu or "
                "reward"
            )

    def score(self, log_prob: float, length: int, uncovered: float = 0.0) -> float:
        """Returns the score of a finished hypothesis.

        log_prob: log-probability of the hypothesis
        length: number of tokens of the hypothesis, EOS included
        uncovered: coverage penalty, computed by `of_coverage`; at most 0
        """
        if self.name == "reward":
            return log_prob + self.alpha * length + uncovered
        base = (5 + length) / 6 if self.name == "wu" else float(length)
        exponent = {"none": 0.0, "average": 1.0}.get(self.name, self.alpha)
        return log_prob / base**exponent + uncovered

    def bound(self, log_prob: float, shortest: int, longest: int) -> float:
        """Returns an upper bound of the scores of all continuations of an unfinished hypothesis.

        Appending tokens never raises the log-probability, the coverage penalty is at most 0, and
        every score is monotone in the length. The bound is therefore the larger of the scores at
        the minimum and the maximum length.

        log_prob: log-probability of the unfinished hypothesis
        shortest, longest: minimum and maximum number of tokens of a finished hypothesis, EOS
            included
        """
        return max(self.score(log_prob, shortest), self.score(log_prob, longest))

    def of_coverage(
        self, covered: Float[Tensor, "n S"], mask: Bool[Tensor, "n S"]
    ) -> Float[Tensor, " n"]:
        """Returns the coverage penalty of each row (hypothesis).

        covered: total attention of each row to each source position
        mask: True for source positions that are not padding
        """
        logs = covered.clamp(UNSEEN, 1.0).log().masked_fill(~mask, 0.0)  # [n, S]
        return self.coverage * logs.sum(-1, dtype=torch.float64)
