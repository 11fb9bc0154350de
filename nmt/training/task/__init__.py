"""What can be trained: a task is one file here. It owns the network, the data, and how the network is judged. The
training code uses only what this file declares.

Read: this file, translation, classification, vectors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.drawing.attention_map import AttentionMap
from nmt.foundation.interfaces import Batches, Loss
from nmt.foundation.ranks import ALONE, Ranks
from nmt.model import Network


class Task(ABC):
    """What is trained and how it is judged: a network, its data, an objective, metrics.

    `command` is the command line's name; `unit` is what batches are counted in; `metric` names the figure that chooses the
    best weights; the text ends after `epochs`; `seed` is that of order and dropout; `ranks` are the processes that train
    together; `fingerprints` identify the data; `meta` and `tensors` are what a checkpoint needs besides weights. If
    `watched`, each validation leaves a few answers in `samples` (Markdown), and the attention of one in `looked`.
    """

    command: str
    unit: str
    network: Network
    metric: str
    answers: Sequence[str] = ()
    epochs: float = math.inf
    seed: int = 0
    ranks: Ranks = ALONE
    watched: bool = False
    samples: str = ""
    looked: AttentionMap | None = None
    title: str
    fingerprints: Mapping[str, str]
    meta: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @abstractmethod
    def introduction(self) -> tuple[str, str]:
        """One line about the data and one about the network."""

    @abstractmethod
    def objective(self, network: Any, batch: Any, update: int, total: int) -> Loss:
        """What is minimised."""

    @abstractmethod
    def batches(self, epoch: int) -> Batches:
        """An epoch's batches, a pure function of its number."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Figures on the validation part, `loss` and `metric` among them. The network is in evaluation mode. What it
        answered is in `answers` afterwards, a line each."""

    @abstractmethod
    def better(self, new: float, old: float | None) -> bool:
        """Whether the metric has improved."""

    @abstractmethod
    def test(self, write: Callable[[str, str], None]) -> tuple[str, dict[str, Any], list[str]]:
        """Judges the network on the test part, or the validation part if there is none, and writes its answers with
        `write(name, text)`. Returns (name of the part, results with a `score` for each metric, lines for people)."""

    @abstractmethod
    def draw(self, folder: Path) -> None:
        """Pictures of what the network has learnt."""

    @abstractmethod
    def next_commands(self, folder: Path) -> list[str]:
        """Commands that the user may want to type next."""
