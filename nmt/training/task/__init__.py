"""Tasks: translation and classification. A task owns the network, the data and the validation of a
training run.

The training loop depends only on the interfaces in this file. Each task is one file in this
folder.

Modules in reading order: this file, translation_task, classification_task.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.drawing.attention_map import AttentionMap
from nmt.foundation.interfaces import Batches
from nmt.foundation.ranks import ALONE, Ranks
from nmt.model import Network, Objective


class ValidationStopped(Exception):
    """Raised if a validation is interrupted, because its results are incomplete."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Results of a validation.

    metrics: metrics by name, among them `loss` and the metric of the task
    answers: outputs of the network (translations or labels), one line each
    example: an input and its output on one line, for the terminal; empty without an example
    samples: a few inputs with their outputs, as Markdown; empty if samples are disabled
    attention: attention map of one input; None if attention maps are disabled
    averaged: whether the weights are the average of several checkpoints (trainer.average)
    """

    metrics: Mapping[str, float]
    answers: Sequence[str] = ()
    example: str = ""
    samples: str = ""
    attention: AttentionMap | None = None
    averaged: bool = False


@dataclass(frozen=True, kw_only=True)
class FinalResult:
    """Results of the final evaluation of a training run.

    part: name of the evaluated data: "test", or "validation" if there is no test set
    results: entries for results.json; `scores` has a `score` for each metric
    lines: results as text lines for the log
    texts: lines of text files for the run folder, such as the outputs, by file name without .txt
    """

    part: str
    results: Mapping[str, Any]
    lines: Sequence[str]
    texts: Mapping[str, Sequence[str]]


def never() -> bool:
    """Default interruption check of a validation: returns False, so the validation continues."""
    return False


class Task(ABC):
    """Base class of tasks: network, data, objective and metrics of a training run.

    command: name of the command-line program
    unit: unit of the batch size and the training speed, such as "target tokens"
    objective: function that computes the training loss of a batch from the network, the batch, the
        number of updates so far, and their total number; called by `Network.forward`
    metric: name of the metric that selects the best weights
    epochs: number of epochs that the training data covers; inf if it can be repeated without limit
    seed: random seed of data order and dropout
    ranks: processes (ranks) that train together
    title: title of the learning curve
    fingerprints: hash of each data set (training, validation, …), by name
    test_fingerprints: maps the name of the test set to its hash; empty without a test set
    capture_obstacle: reason why the computation of gradients cannot be recorded and replayed (on a
        GPU, as a CUDA graph); empty if it can
    meta, tensors: header entries and tensors that checkpoints contain besides the weights
    """

    command: str
    unit: str
    network: Network
    objective: Objective
    metric: str
    epochs: float = math.inf
    seed: int = 0
    ranks: Ranks = ALONE
    title: str
    fingerprints: Mapping[str, str]
    test_fingerprints: Mapping[str, str] = {}
    meta: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    capture_obstacle: str = "this task does not pad its batches"

    @abstractmethod
    def introduction(self) -> tuple[str, str]:
        """Returns two lines for the log: the first describes the data, the second the network."""

    @abstractmethod
    def batches(self, epoch: int) -> Batches:
        """Returns the batches of an epoch. The batches depend only on seed and epoch number."""

    @abstractmethod
    def validate(self, interrupted: Callable[[], bool] = never) -> Validation:
        """Evaluates the network, which must be in evaluation mode, on the validation data.

        interrupted: function called between batches; the validation stops if the function returns
            True

        Raises ValidationStopped on all ranks if any rank was interrupted.
        """

    @abstractmethod
    def better(self, new: float, old: float | None) -> bool:
        """Returns whether the validation metric has improved.

        new: score of the last validation
        old: best score of all earlier validations; None at the first validation
        """

    @abstractmethod
    def test(self) -> FinalResult:
        """Evaluates the network on the test set, or on the validation set if there is no test
        set."""

    @abstractmethod
    def draw(self, folder: Path) -> None:
        """Draws figures of the trained network, such as attention maps, and writes them to a
        folder."""

    @abstractmethod
    def next_commands(self, folder: Path) -> list[str]:
        """Returns shell commands to suggest to the user for the trained model in a run folder."""
