"""The sliced output layer and loss against PyTorch's, value and gradient."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from nmt.model.layers import fused_cross_entropy as cross_entropy
from nmt.model.layers.fused_cross_entropy import linear_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("slice_size", [30, 10**6])
def test_equals_torch(monkeypatch, smoothing, slice_size):
    monkeypatch.setattr(cross_entropy, "SLICE", slice_size)
    x, weight, bias = (
        torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((7, 5), (9, 5), (9,))
    )
    targets = torch.randint(0, 9, (7,))
    loss, nll = linear_cross_entropy(x, weight, bias, targets, smoothing)
    truth = F.cross_entropy(
        F.linear(x, weight, bias), targets, label_smoothing=smoothing, reduction="sum"
    )
    torch.testing.assert_close(loss, truth)
    torch.testing.assert_close(
        nll, F.cross_entropy(F.linear(x, weight, bias), targets, reduction="sum").detach()
    )
    for mine, theirs in zip(
        torch.autograd.grad(3 * loss, (x, weight, bias)),
        torch.autograd.grad(3 * truth, (x, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_certainty_does_not_overflow():
    """A probability that rounds to zero still has a finite logarithm."""
    weight = torch.tensor([[1000.0], [0.0]])
    loss, nll = linear_cross_entropy(torch.ones(1, 1), weight, torch.zeros(2), torch.tensor([1]))
    assert loss.item() == nll.item() == 1000.0


def test_bfloat16_stays_close():
    x, weight, bias = torch.randn(50, 32), torch.randn(100, 32) / 6, torch.randn(100)
    targets = torch.randint(0, 100, (50,))
    exact, _ = linear_cross_entropy(x, weight, bias, targets, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        low, _ = linear_cross_entropy(x, weight, bias, targets, 0.1)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, exact, rtol=0.01, atol=0)


def test_a_batch_without_gradients_needs_none():
    with torch.no_grad():
        loss, _ = linear_cross_entropy(
            torch.randn(3, 4), torch.randn(5, 4), torch.zeros(5), torch.tensor([0, 1, 4])
        )
    assert torch.isfinite(loss)


def test_a_validation_computes_no_gradient():
    """One matrix product without gradients, more with them."""
    x, weight, bias = (
        torch.randn(*s, dtype=torch.float64, requires_grad=True) for s in ((6, 5), (9, 5), (9,))
    )
    targets = torch.randint(0, 9, (6,))
    products = []
    for is_training in (False, True):
        with torch.set_grad_enabled(is_training), FlopCounterMode(display=False) as counter:
            linear_cross_entropy(x, weight, bias, targets)
        products.append(counter.get_total_flops() / (2 * 6 * 5 * 9))
    assert products[0] == 1 < products[1]
