"""Types for the signatures that configuration is checked against: ranges, and nested parts.

    def __init__(self, *, dropout: Fraction = 0.0, num_layers: Size = 1)

The annotation is the only place where the range of a setting is written down.
"""

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
        try:
            if not math.isfinite(value):
                return False
        except OverflowError:  # a whole number beyond all floating-point numbers
            return False
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        low = (
            ""
            if self.low == float("-inf")
            else f"{_written(self.low)} {'<' if self.open_low else '≤'} "
        )
        high = (
            ""
            if self.high == float("inf")
            else f" {'<' if self.open_high else '≤'} {_written(self.high)}"
        )
        return f"{low}value{high}"


@dataclass(frozen=True)
class Nested:
    """A parameter with the keys of a part; the constructor receives a function that builds it.

        words: Annotated[Callable[..., RNNEncoder], Nested(RNNEncoder, ("embedding_size",))]

    base: class of the part, or its base class
    supplied: arguments of the part that are not keys, because they are passed to the function
    """

    base: type
    supplied: tuple[str, ...] = ()


def _written(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


Size = Annotated[int, Range(1, 2**31 - 1)]
Width = Annotated[int, Range(1, 65_536)]
"""Units of a layer or hypotheses of a search, to which memory is proportional."""
Depth = Annotated[int, Range(1, 100)]
"""Layers on top of one another."""
Length = Annotated[int, Range(1, 100_000)]
"""Tokens of a sentence."""
Count = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, open_low=True)]
NonNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1, open_high=True)]
"""0 ≤ value < 1: dropout, smoothing."""
Share = Annotated[float, Range(0, 0.5, open_high=True)]
"""0 ≤ value < 0.5: fraction that is taken twice, for validation and for test."""
Ratio = Annotated[float, Range(0, 1)]
