"""Laws: functions that each test one property of correct code, and raise BrokenLaw if the tested
code does not have the property."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

Subject = TypeVar("Subject")
TOLERANCE = 1e-9
"""Maximum absolute difference between float64 values that count as equal."""
FLOAT32_TOLERANCE = 1e-5
"""Maximum absolute difference between values of lower precision, such as float32, that count as
equal."""


class BrokenLaw(Exception):
    """Raised if the tested code breaks a law; the message explains the probable cause."""


class SkippedLaw(Exception):
    """Raised if a law cannot be tested, because the tested code does not return the values that the
    law needs."""


def require(holds: bool | Tensor, explanation: str) -> None:
    """Raises BrokenLaw with an explanation if a condition does not hold."""
    if not holds:
        raise BrokenLaw(explanation)


def tolerance(values: Tensor) -> float:
    """Returns the maximum absolute difference between values of this data type that count as
    equal."""
    return TOLERANCE if values.dtype == torch.float64 else FLOAT32_TOLERANCE


def difference(actual: Tensor, expected: Tensor) -> float:
    """Returns the maximum absolute difference between two tensors; infinity for unequal shapes."""
    if actual.shape != expected.shape:
        return float("inf")
    return float((actual - expected).abs().max())


def require_equal(actual: Tensor, expected: Tensor, explanation: str) -> None:
    """Raises BrokenLaw if two tensors differ by more than the tolerance of their data type.

    explanation: text in which {} stands for the difference
    """
    largest = difference(actual, expected)
    require(largest <= tolerance(actual), explanation.format(f"{largest:.2g}"))


def broken_laws(
    laws: Mapping[str, Callable[[Subject], None]], subject: Subject
) -> tuple[dict[str, str], list[str]]:
    """Returns the explanation of each broken law, by name, and the names of the laws that cannot be
    tested.

    An exception raised by the tested code also counts as a broken law.

    laws: test function of each law, by name
    subject: tested code or example, which is passed to the test functions
    """
    broken = {}
    skipped = []
    for name, law in laws.items():
        try:
            law(subject)
        except SkippedLaw:
            skipped.append(name)
        except BrokenLaw as error:
            broken[name] = str(error)
        except (Exception, SystemExit) as error:
            broken[name] = f"the code raises {type(error).__name__}: {error}."
    return broken, skipped
