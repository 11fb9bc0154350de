"""Length penalties: a finished hypothesis of n words (EOS counted) and log-probability P has the score P / penalty(n).

none         penalty(n) = 1
average      penalty(n) = n
wu           penalty(n) = ((5 + n) / 6)^α          Wu et al. 2016, eq. 14
"""

from __future__ import annotations

from typing import Literal

PenaltyName = Literal["none", "average", "wu"]


def penalty(name: PenaltyName, alpha: float, length: int) -> float:
    """What a log-probability of `length` words is divided by; never falls as the length grows."""
    if name == "none":
        return 1.0
    return float(length) if name == "average" else ((5 + length) / 6) ** alpha
