"""Training objectives: callables (network, batch, number of updates done so far, total number of
updates) → `Loss`.

Each objective is one file in this folder and one YAML file in conf/objective.

Modules in reading order: cross_entropy, scheduled_sampling, r_drop, minimum_risk, distillation.
"""

import inspect
from collections.abc import Callable


def check_objective(objective: type) -> None:
    """Raises ValueError if a training objective cannot be called with the trainer's arguments."""
    arguments = ("self", "network", "batch", "update", "total")
    try:
        if not issubclass(objective, Callable):  # type: ignore[arg-type]
            raise TypeError("the method is missing")
        inspect.signature(objective.__call__).bind(*arguments)
    except TypeError as error:
        raise ValueError(
            f"objective={objective.__name__}: `__call__` must have the parameters "
            f"{', '.join(arguments)} ({error})"
        ) from error
