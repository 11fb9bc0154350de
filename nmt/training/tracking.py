"""Callback that sends training metrics, validation metrics, samples and attention maps to
experiment trackers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.foundation.extras import installed
from nmt.training.callback import Callback, Update
from nmt.training.task import Validation
from nmt.training.tracker import Tracker

FIGURES = ("loss", "rate", "gradient_norm", "speed")
"""Names of the training metrics that are sent to trackers, attributes of `Update`."""


class Tracking(Callback):
    """Callback that sends the metrics of a run to experiment trackers. The constructor starts the
    recording.

    trackers: experiment trackers
    folder: run directory
    config: configuration as a mapping from dotted keys to values
    text: configuration as YAML
    resumed_at: update number at which a resumed run continues; None for a new run
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        folder: Path,
        config: Mapping[str, Any],
        text: str,
        resumed_at: int | None,
    ) -> None:
        self.trackers = trackers
        for tracker in self.trackers:
            tracker.begin(folder, config, resumed_at)
            if resumed_at is None:
                tracker.text("config", "\n".join("    " + line for line in text.splitlines()), 0)

    def on_update(self, update: Update) -> None:
        figures = {f"train/{name}": getattr(update, name) for name in FIGURES}
        for tracker in self.trackers:
            tracker.figures(figures, update.update)

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        figures = {f"validation/{name}": value for name, value in validation.metrics.items()}
        for tracker in self.trackers:
            tracker.figures(figures, update)
            if validation.samples:
                tracker.text("validation/samples", validation.samples, update)
            if validation.attention is not None and installed("matplotlib"):
                tracker.picture("validation/attention", validation.attention.plot(), update)

    def on_end(self, results: Mapping[str, float] | None) -> None:
        """Ends the recording in all trackers.

        results: final scores; None if the run was stopped or has failed
        """
        for tracker in self.trackers:
            tracker.close(results)
