"""Whole networks: one that translates, one that classifies.

Read: this file, seq2seq, copying, lexical, seq2label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from nmt.foundation.interfaces import Critic, Loss

Objective = Callable[[Any, Any, int, int], Loss]
"""(network, batch, updates done so far, updates in all) → loss. An objective is one file in nmt/training/objective."""


@runtime_checkable
class NeedsReward(Protocol):
    """An objective that looks at what the network writes."""

    def take_critic(self, critic: Critic) -> None: ...


@runtime_checkable
class NeedsTeacher(Protocol):
    """An objective with trained models, the teachers: where they are, and what takes them once they are read."""

    teacher: list[str]

    def take_teachers(self, teachers: Sequence[Any]) -> None: ...


class Network(nn.Module):
    """Base of what is trained."""

    def forward(self, objective: Objective, batch: Any, update: int, total: int = 0) -> Loss:
        """The loss of a batch. Whatever the objective does with the network happens inside this one call, so that a wrapper
        such as DistributedDataParallel sees all of it."""
        return objective(self, batch, update, total)

    def estimates(self) -> list[Tensor]:
        """What parts have estimated in training by other means than gradients: their tensors named in `estimates`."""
        own = [module for module in self.modules() if module is not self]
        return [
            getattr(module, name) for module in own for name in getattr(module, "estimates", ())
        ]
