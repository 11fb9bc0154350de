"""Types with ranges, for the signatures that configuration is checked against.

    def __init__(self, *, dropout: Probability = 0.0, num_layers: Size = 1)

The annotation is the only place where the range of a setting is written down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """low ≤ value ≤ high; `open_low` and `open_high` exclude the ends."""

    low: float = float("-inf")
    high: float = float("inf")
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        low = "" if self.low == float("-inf") else f"{self.low:g} {'<' if self.open_low else '≤'} "
        high = "" if self.high == float("inf") else f" {'<' if self.open_high else '≤'} {self.high:g}"
        return f"{low}value{high}"


Size = Annotated[int, Range(1)]
Count = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, open_low=True)]
NonNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1, open_high=True)]
"""0 ≤ value < 1: dropout, smoothing."""
Ratio = Annotated[float, Range(0, 1)]
