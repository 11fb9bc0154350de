"""The optimizers of torch.optim: the four that the papers use, with the settings worth changing, and all others that take
gradients of any shape, with their own parameters (`nmt.training.optimizer.RAdam` …).

Each is fused into one kernel per step where PyTorch has one.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from nmt.foundation.ranges import Fraction, NonNegative, Positive


def adam(
    *,
    parameters: Iterable[nn.Parameter],
    lr: Positive = 1e-3,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.999,
    eps: Positive = 1e-8,
    weight_decay: NonNegative = 0.0,
) -> torch.optim.Optimizer:
    """Adam (Kingma & Ba 2015); weight_decay is an L2 penalty in the gradient."""
    return torch.optim.Adam(
        parameters, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, fused=True
    )


def adamw(
    *,
    parameters: Iterable[nn.Parameter],
    lr: Positive = 1e-3,
    beta1: Fraction = 0.9,
    beta2: Fraction = 0.999,
    eps: Positive = 1e-8,
    weight_decay: NonNegative = 0.01,
) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""
    return torch.optim.AdamW(
        parameters, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, fused=True
    )


def sgd(
    *,
    parameters: Iterable[nn.Parameter],
    lr: Positive = 1.0,
    momentum: Fraction = 0.0,
    weight_decay: NonNegative = 0.0,
) -> torch.optim.Optimizer:
    """Stochastic gradient descent, as in Luong et al. 2015 (lr 1, clipped at 5)."""
    return torch.optim.SGD(
        parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, fused=True
    )


def adadelta(
    *,
    parameters: Iterable[nn.Parameter],
    lr: Positive = 1.0,
    rho: Fraction = 0.95,
    eps: Positive = 1e-6,
) -> torch.optim.Optimizer:
    """Adadelta (Zeiler 2012), as in Bahdanau et al. 2015."""
    return torch.optim.Adadelta(parameters, lr=lr, rho=rho, eps=eps)


OF_TORCH = ("ASGD", "Adafactor", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
"""The others. LBFGS computes the loss several times a step, SparseAdam wants sparse gradients, Muon matrices alone."""
RANGES = {
    "lr": Positive, "eps": Positive, "weight_decay": NonNegative, "betas": tuple[Fraction, Fraction], "momentum": Fraction,
    "lr_decay": NonNegative, "initial_accumulator_value": NonNegative, "momentum_decay": NonNegative, "lambd": NonNegative,
    "d": Positive, "step_sizes": tuple[Positive, Positive], "RMSprop.alpha": Fraction, "ASGD.alpha": NonNegative,
    "Adafactor.eps": tuple[Positive | None, Positive],
}  # fmt: skip
"""Of their parameters, by name, or by class and name; PyTorch does not check them all."""
NOT_SETTINGS = ("params", "foreach", "capturable", "differentiable", "fused", "maximize", "t0")
"""Their parameters that say how to compute, not what; and when ASGD starts an average, which is trainer.ema's work here."""


def __getattr__(name: str) -> Callable[..., torch.optim.Optimizer]:
    if name not in OF_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _of_torch(getattr(torch.optim, name))


def _of_torch(kind: Any) -> Callable[..., torch.optim.Optimizer]:
    """An optimizer of PyTorch as a function like those above: its parameters by keyword, with their types and defaults."""

    def make(*, parameters: Iterable[nn.Parameter], **values: Any) -> torch.optim.Optimizer:
        return kind(parameters, **values)

    own = [p for name, p in inspect.signature(kind).parameters.items() if name not in NOT_SETTINGS]
    hints = {**typing.get_type_hints(kind.__init__), **RANGES}
    types = {p.name: RANGES.get(f"{kind.__name__}.{p.name}", hints[p.name]) for p in own}
    make.__annotations__ = {"parameters": Iterable[nn.Parameter], **types}
    first = inspect.Parameter("parameters", inspect.Parameter.KEYWORD_ONLY)
    keys = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    make.__signature__ = inspect.Signature([first, *keys])  # type: ignore[attr-defined]
    return make
