"""Tells trackers how a training goes: figures, and at every validation some translations and where the model looked."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.foundation.extras import installed
from nmt.training.task import Task
from nmt.training.tracker import Tracker
from nmt.training.trainer import Update

log = logging.getLogger(__name__)
SHOWN = ("loss", "rate", "gradient_norm", "speed")
"""Figures of training that are drawn."""


class Tracking:
    """Observer. `text`: the configuration as YAML; `config`: the same, flat."""

    def __init__(
        self,
        trackers: Sequence[Tracker],
        task: Task,
        folder: Path,
        config: Mapping[str, Any],
        text: str,
        resumed_at: int | None,
    ) -> None:
        self.trackers, self.task = list(trackers), task
        task.watched = bool(self.trackers)
        for tracker in self.trackers:
            tracker.begin(folder, config, resumed_at)
            if resumed_at is None:
                tracker.text("config", "\n".join("    " + line for line in text.splitlines()), 0)

    def on_update(self, update: Update) -> None:
        for tracker in self.trackers:
            tracker.figures(
                {f"train/{name}": getattr(update, name) for name in SHOWN}, update.update
            )

    def on_validation(
        self, update: int, epoch: float, metrics: dict[str, float], best: bool
    ) -> None:
        for tracker in self.trackers:
            tracker.figures(
                {f"validation/{name}": value for name, value in metrics.items()}, update
            )
            if self.task.samples:
                tracker.text("validation/samples", self.task.samples, update)
            if self.task.looked is not None and installed("matplotlib"):
                tracker.picture("validation/attention", self.task.looked.plot(), update)

    def close(self, results: Mapping[str, float] | None) -> None:
        """The end, with the scores of the test part, or a stop (None)."""
        for tracker in self.trackers:
            tracker.close(results)
        self.trackers = []
