"""Optimizers of torch.optim, with their settings as keyword arguments.

`nmt.training.optimizer.NAME` is a function for each name in CLASSES. Three optimizers are not
supported: LBFGS (evaluates the loss several times per update), SparseAdam (needs sparse gradients)
and Muon (supports only matrices).
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_type_hints

import torch

from nmt.foundation.ranges import Fraction, NonNegative, Positive, Range

OF_TORCH = ("ASGD", "Adafactor", "Adagrad", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop")
"""Configuration names of optimizers that have the same settings as their torch.optim class."""
CLASSES = {
    "adam": "Adam",
    "adamw": "AdamW",
    "sgd": "SGD",
    "adadelta": "Adadelta",
    **dict(zip(OF_TORCH, OF_TORCH, strict=True)),
}
"""Class names in torch.optim, by configuration name."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "adam": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0},
    "adamw": {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01},
    "sgd": {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0},
    "adadelta": {"lr": 1.0, "rho": 0.95, "eps": 1e-6},
}
"""Settings of common optimizers, with default values. Optimizers not listed have the settings of
their torch.optim class.

AdamW decouples weight decay (Loshchilov & Hutter 2019). Bahdanau et al. 2015 use Adadelta (Zeiler
2012).
"""
FUSED = ("adam", "adamw", "sgd")
"""Configuration names of optimizers with a fused implementation, which updates all parameters in
one call."""
RANGES: Mapping[str, Any] = {
    "lr": Positive,
    "eps": Positive,
    "weight_decay": NonNegative,
    "beta1": Fraction,
    "beta2": Fraction,
    "betas": tuple[Fraction, Fraction],
    "etas": tuple[
        Annotated[float, Range(0, 1, open_low=True, open_high=True)],
        Annotated[float, Range(1, open_low=True)],
    ],
    "rho": Fraction,
    "momentum": Fraction,
    "lr_decay": NonNegative,
    "initial_accumulator_value": NonNegative,
    "momentum_decay": NonNegative,
    "lambd": NonNegative,
    "d": Positive,
    "step_sizes": tuple[Positive, Positive],
    "RMSprop.alpha": Fraction,
    "ASGD.alpha": NonNegative,
    "Adafactor.eps": tuple[Positive | None, Positive],
}
"""Valid ranges of optimizer settings, by NAME or CLASS.NAME. The ranges are needed because PyTorch
accepts values such as lr=inf and momentum=2."""
NOT_SETTINGS = ("params", "foreach", "capturable", "differentiable", "fused", "maximize", "t0")
"""Arguments of torch.optim classes that are not configuration keys: parameters, variants of the
implementation, `maximize`, and `t0`. ASGD averages weights from update `t0` on; in nmt, trainer.ema
averages weights."""


def __getattr__(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Returns the optimizer function with the given name: (parameters, settings as keyword
    arguments) → optimizer. The signature of the function has types and default values."""
    if name not in CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    kind = getattr(torch.optim, CLASSES[name])
    defaults = SETTINGS.get(name) or {
        key: parameter.default
        for key, parameter in inspect.signature(kind).parameters.items()
        if key not in NOT_SETTINGS
    }

    def make(*, parameters: Iterable[torch.nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
        values = {**defaults, **settings}
        if "beta1" in values:
            values["betas"] = values.pop("beta1"), values.pop("beta2")
        if name in FUSED:
            values["fused"] = True
        return kind(parameters, **values)

    types = {**get_type_hints(kind.__init__), **RANGES}
    hints = {key: RANGES.get(f"{name}.{key}", types[key]) for key in defaults}
    make.__annotations__ = {"parameters": Iterable[torch.nn.Parameter], **hints}
    keyword = inspect.Parameter.KEYWORD_ONLY
    settings = [inspect.Parameter(key, keyword, default=value) for key, value in defaults.items()]
    parameters = [inspect.Parameter("parameters", keyword), *settings]
    make.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return make
