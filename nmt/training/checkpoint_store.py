"""Interface of checkpoint storage."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Store(Protocol):
    """Interface of checkpoint storage. A state is a JSON object; tensors and weights are
    dictionaries from names to tensors."""

    def save_last(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Saves the training state, and removes the snapshots that it does not name."""

    def load_last(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Returns the last training state."""

    def save_best(self, state: dict[str, Any], weights: dict[str, Tensor]) -> None:
        """Saves the best weights."""

    def save_snapshot(self, update: int, weights: dict[str, Tensor]) -> None:
        """Saves weights for the average."""

    def average(self, updates: Sequence[int]) -> dict[str, Tensor]:
        """Returns the mean of the snapshots."""
