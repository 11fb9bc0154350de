"""What can be trained: a task is one file here. It owns the model, the data and how the model is judged; the training knows
no more of it than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.storage.checkpoint import Checkpoint
from nmt.foundation.interfaces import Loss
from nmt.training.run_directory import RunDirectory
from nmt.training.trainer import Batches


class Task(ABC):
    """Built from a checked configuration, on a device, anew or to go on with what a checkpoint holds.

    `command` is the command line's name; `unit` is what batches are counted in; `metric` chooses the best weights;
    `fingerprints` identify the data; `meta` and `tensors` are what a checkpoint needs beside weights.
    """

    command: str
    unit: str
    model: nn.Module
    metric: str
    title: str
    fingerprints: Mapping[str, str]
    meta: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @abstractmethod
    def __init__(self, config: Mapping[str, Any], device: torch.device, saved: Checkpoint | None) -> None:
        """Raises UserError if the data cannot be used."""

    @staticmethod
    @abstractmethod
    def check(config: Mapping[str, Any]) -> None:
        """Raises UserError listing everything that is wrong with a configuration."""

    @abstractmethod
    def introduction(self) -> list[str]:
        """Data and model in a line each."""

    @abstractmethod
    def objective(self, model: Any, batch: Any, update: int) -> Loss:
        """What is minimised."""

    @abstractmethod
    def batches(self, epoch: int) -> Batches:
        """An epoch's batches, a pure function of its number."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Figures on the validation part, `loss` and `metric` among them."""

    @abstractmethod
    def better(self, new: float, old: float | None) -> bool:
        """Whether the metric has improved."""

    @abstractmethod
    def test(self, files: RunDirectory) -> tuple[str, dict[str, Any], list[str]]:
        """Judges the model on the test part, or the validation part if there is none, and writes what it answers into the
        folder: (name of the part, results with a `score` for each metric, lines for people)."""

    @abstractmethod
    def draw(self, folder: Path) -> None:
        """Pictures of what the model has learnt."""

    @abstractmethod
    def next_commands(self, folder: Path) -> list[str]:
        """What somebody may want to type next."""
