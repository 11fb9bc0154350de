"""Tasks: each task owns the network, the data and the validation of a training.

The training loop depends only on the interfaces in this file. Each task is one file in this
folder.

Reading order: this file, translation_task, classification_task, pretrained_vectors.
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
    """Raised if a validation was interrupted, so its results are incomplete."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Results of a validation.

    metrics: values by name, among them `loss` and the metric of the task
    answers: outputs of the network, one line each
    samples: a few inputs and outputs as Markdown; empty if no samples were requested
    attention: attention over one of the inputs; None if not requested
    """

    metrics: Mapping[str, float]
    answers: Sequence[str] = ()
    samples: str = ""
    attention: AttentionMap | None = None


@dataclass(frozen=True, kw_only=True)
class FinalResult:
    """Results of a test.

    part: evaluated part of the data, "test", or "validation" if there is no test set
    results: entries for results.json; `scores` has a `score` for each metric
    lines: results as lines for the log
    """

    part: str
    results: Mapping[str, Any]
    lines: Sequence[str]


def never() -> bool:
    """Returns False; the default interruption check."""
    return False


class Task(ABC):
    """Network, data, objective and metrics of a training.

    command: name of the command-line program
    unit: unit of the batch size and the training speed, such as "target tokens"
    metric: name of the metric that selects the best weights
    epochs: number of epochs after which the data ends
    seed: random seed of data order and dropout
    ranks: processes that train together
    title: title of the learning curve
    fingerprints: hash of each part of the data
    meta, tensors: contents of a checkpoint besides the weights
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
        """Returns a line about the data and a line about the network, for the log."""

    @abstractmethod
    def objective(self, network: Any, batch: Any, update: int, total: int) -> Loss:
        """Returns the training loss of a batch."""

    @abstractmethod
    def batches(self, epoch: int) -> Batches:
        """Returns the batches of an epoch, which depend only on its number."""

    @abstractmethod
    def validate(self, interrupted: Callable[[], bool] = never) -> Validation:
        """Validates the network, which is in evaluation mode.

        interrupted: function called between batches; True stops the validation

        Raises ValidationStopped on all ranks if one of them was interrupted.
        """

    @abstractmethod
    def better(self, new: float, old: float | None) -> bool:
        """Returns whether the metric has improved.

        new: score of the last validation
        old: best score before; None at the first validation
        """

    @abstractmethod
    def test(self, write: Callable[[str, str], None]) -> FinalResult:
        """Evaluates the network on the test set, or on the validation set if there is no test set.

        write: function that writes a file, given its name and text
        """

    @abstractmethod
    def draw(self, folder: Path) -> None:
        """Draws figures of the trained network to files in a folder."""

    @abstractmethod
    def next_commands(self, folder: Path) -> list[str]:
        """Returns commands to suggest for the trained model in a run directory."""
