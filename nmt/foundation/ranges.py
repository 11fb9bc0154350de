"""Types with value ranges, for annotating constructor parameters that are configuration keys.

    def __init__(self, *, dropout: Fraction = 0.0, num_layers: Size = 1)

The annotation is the only place that defines the valid range of a setting.
"""

import sys
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True)
class Range:
    """Interval of valid values. Both bounds belong to the interval unless excluded.

    low: lower bound
    high: upper bound
    open_low: whether the lower bound itself is invalid
    open_high: whether the upper bound itself is invalid
    """

    low: float = float("-inf")
    high: float = float("inf")
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        below = value < self.high if self.open_high else value <= self.high
        # NaN, inf and integers that are too large for a float are in no interval.
        return above and below and abs(value) <= sys.float_info.max

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
    """Annotation of a constructor parameter that receives a factory of another component.

        words: Annotated[Callable[..., RNNEncoder], Nested(RNNEncoder, ("embedding_size",))]

    The configuration keys under the parameter's name are the arguments of the component.

    base: class of the component, or its base class
    supplied: arguments of the component that the caller of the factory passes, which are not
        configuration keys
    """

    base: type
    supplied: tuple[str, ...] = ()


def _written(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


Size = Annotated[int, Range(1, 2**31 - 1)]
Width = Annotated[int, Range(1, 65_536)]
"""Layer width in units, or beam width in hypotheses: 1 to 65,536."""
Depth = Annotated[int, Range(1, 100)]
"""Small count, such as the number of layers of an encoder or of digits in an image: 1 to 100."""
Threads = Annotated[int, Range(1, 1024)]
Length = Annotated[int, Range(1, 100_000)]
"""Number of tokens of a sentence: 1 to 100,000."""
Count = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, open_low=True)]
NonNegative = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1, open_high=True)]
"""Fraction with 0 ≤ value < 1, such as a dropout probability or label smoothing."""
Share = Annotated[float, Range(0, 0.5, open_high=True)]
"""Fraction of a data set, 0 ≤ value < 0.5, that is held out for validation. An equal fraction is
held out for testing."""
Ratio = Annotated[float, Range(0, 1)]
