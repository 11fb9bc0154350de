"""The optimizers of torch.optim that train recurrent translation models, with the settings worth changing.

Each is fused into one kernel per step where PyTorch has one.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    return torch.optim.Adam(parameters, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, fused=True)


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
    return torch.optim.AdamW(parameters, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, fused=True)


def sgd(
    *, parameters: Iterable[nn.Parameter], lr: Positive = 1.0, momentum: Fraction = 0.0, weight_decay: NonNegative = 0.0
) -> torch.optim.Optimizer:
    """Stochastic gradient descent, as in Luong et al. 2015 (lr 1, clipped at 5)."""
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay, fused=True)


def adadelta(
    *, parameters: Iterable[nn.Parameter], lr: Positive = 1.0, rho: Fraction = 0.95, eps: Positive = 1e-6
) -> torch.optim.Optimizer:
    """Adadelta (Zeiler 2012), as in Bahdanau et al. 2015."""
    return torch.optim.Adadelta(parameters, lr=lr, rho=rho, eps=eps)
