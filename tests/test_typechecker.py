"""The checks of shapes and types in the tests themselves."""

from dataclasses import dataclass

import jaxtyping
import pytest
import torch
import typechecker
from jaxtyping import Float
from torch import Tensor


@typechecker.checked_at_first(typechecker=typechecker.check)
def total(vectors: Float[Tensor, "batch size"], weights: Float[Tensor, " size"]) -> float:
    return (vectors.sum() + weights.sum()).item()


@typechecker.checked_at_first(typechecker=typechecker.check)
@dataclass
class State:
    vectors: Float[Tensor, "batch size"]


@pytest.mark.parametrize("shape", [(2,), (4,)])  # each test checks the first calls again
def test_the_first_calls_of_each_test_are_checked(shape):
    for _ in range(typechecker.CALLS):
        with pytest.raises(jaxtyping.TypeCheckError):
            total(torch.zeros(2, 3), torch.zeros(shape))
    assert total(torch.zeros(2, 3), torch.zeros(shape)) == 0
    with pytest.raises(jaxtyping.TypeCheckError):
        State(torch.zeros(3))


def test_unchecked_calls_are_not_checked():
    with typechecker.unchecked():
        assert total(torch.zeros(2, 3), torch.zeros(4)) == 0
    with pytest.raises(jaxtyping.TypeCheckError):
        total(torch.zeros(2, 3), torch.zeros(4))
