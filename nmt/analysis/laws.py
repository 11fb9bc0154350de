"""Laws: functions that test one property of correct code, and raise BrokenLaw otherwise."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor

Subject = TypeVar("Subject")
TOLERANCE = 1e-9
"""Maximum absolute difference between float64 values that count as equal."""


class BrokenLaw(Exception):
    """Exception of a law that the tested code breaks; the message explains the probable cause."""


class SkippedLaw(Exception):
    """Exception of a law about values that the tested code does not return."""


def require(holds: bool | Tensor, explanation: str) -> None:
    """Raises BrokenLaw with an explanation if a condition does not hold."""
    if not holds:
        raise BrokenLaw(explanation)


def difference(actual: Tensor, expected: Tensor) -> float:
    """Returns the maximum absolute difference of two tensors; infinity for unequal shapes."""
    if actual.shape != expected.shape:
        return float("inf")
    return float((actual - expected).abs().max())


def require_equal(actual: Tensor, expected: Tensor, explanation: str) -> None:
    """Raises BrokenLaw if two tensors differ by more than TOLERANCE.

    explanation: text in which {} stands for the difference
    """
    largest = difference(actual, expected)
    require(largest <= TOLERANCE, explanation.format(f"{largest:.2g}"))


def broken_laws(laws: Mapping[str, Callable[[Subject], None]], subject: Subject) -> dict[str, str]:
    """Returns the explanation of each law that a subject breaks, by name of the law.

    laws: test of each law, by name
    subject: argument of the tests; an exception of the tested code breaks the law
    """
    broken = {}
    for name, law in laws.items():
        try:
            law(subject)
        except SkippedLaw:
            continue
        except BrokenLaw as error:
            broken[name] = str(error)
        except Exception as error:
            broken[name] = f"the code raises {type(error).__name__}: {error}."
    return broken
