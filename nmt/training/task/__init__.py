"""Tasks: each is one file here. A task owns the network, the data and the validation; training uses
only what this file declares.

Read: this file, translation_task, classification_task, pretrained_vectors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.drawing.attention_map import AttentionMap
from nmt.foundation.interfaces import Batches, Loss
from nmt.foundation.ranks import ALONE, Ranks
from nmt.model import Network


class ValidationStopped(Exception):
    """A validation that was interrupted: its figures are incomplete."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Results of a validation.

    metrics: figures by name, among them `loss` and the metric of the task.
    answers: outputs of the network, one line each.
    samples: a few inputs and outputs in Markdown; empty if no samples were requested.
    attention: the attention over one of the inputs.
    """

    metrics: Mapping[str, float]
    answers: Sequence[str] = ()
    samples: str = ""
    attention: AttentionMap | None = None


@dataclass(frozen=True, kw_only=True)
class FinalResult:
    """Results of a test.

    part: name of the part of the data: test, or validation if there is no test part.
    results: figures for results.json; `scores` has a `score` for each metric.
    lines: the same as lines for the log.
    """

    part: str
    results: Mapping[str, Any]
    lines: Sequence[str]


def never() -> bool:
    """The default check for an interruption."""
    return False


class Task(ABC):
    """A network, its data, an objective and metrics.

    command: name of the command line.
    unit: name of the items that batches count.
    metric: name of the figure that chooses the best weights.
    epochs: epochs after which the data ends.
    seed: random seed of order and dropout.
    ranks: the processes that train together.
    fingerprints: hashes of the parts of the data.
    meta, tensors: contents of a checkpoint besides the weights.
    """

    command: str
    unit: str
    network: Network
    metric: str
    epochs: float = math.inf
    seed: int = 0
    ranks: Ranks = ALONE
    title: str
    fingerprints: Mapping[str, str]
    meta: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @abstractmethod
    def introduction(self) -> tuple[str, str]:
        """One line about the data and one about the network."""

    @abstractmethod
    def objective(self, network: Any, batch: Any, update: int, total: int) -> Loss:
        """The loss to minimise."""

    @abstractmethod
    def batches(self, epoch: int) -> Batches:
        """An epoch's batches, a pure function of its number."""

    @abstractmethod
    def validate(self, interrupted: Callable[[], bool] = never) -> Validation:
        """Validates the network, which is in evaluation mode.

        interrupted: called between batches; whether to stop.

        Raises ValidationStopped on all ranks if one of them was interrupted.
        """

    @abstractmethod
    def better(self, new: float, old: float | None) -> bool:
        """Whether the metric has improved.

        new: score of the last validation
        old: best score before; None: there is none
        """

    @abstractmethod
    def test(self, write: Callable[[str, str], None]) -> FinalResult:
        """Evaluates the network on the test part, or on the validation part if there is none.

        write: called with the name of a file and the answers in it.
        """

    @abstractmethod
    def draw(self, folder: Path) -> None:
        """Draws figures of the trained network."""

    @abstractmethod
    def next_commands(self, folder: Path) -> list[str]:
        """Commands to suggest next."""
