"""Experiment trackers: TensorBoard, MLflow, Trackio, and Weights & Biases.

The callback `Tracking` sends training metrics, validation metrics, samples and attention maps to
trackers.

Reading order: this file, tensorboard, the rest in any order.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UserError, first_line
from nmt.foundation.extras import installed
from nmt.storage.files import read_json_object, write_atomically
from nmt.training.callback import Callback, Update
from nmt.training.task import Validation

KNOWN = "tracker.json"
"""Name of the file in the run folder that contains the run's id in the tracker."""


class Tracker(ABC):
    """Base class of experiment trackers, which record the configuration and metrics of a run.
    Updates are numbered from 1. A resumed run keeps its id in the tracker."""

    package: str
    """Name of the Python package that the tracker requires."""

    def begin(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        """Starts the recording of a run in the tracker.

        folder: run folder
        config: configuration as a mapping from dotted keys to values
        resumed_at: update number at which a resumed run continues; None for a new run

        Raises UserError if the tracker cannot be used.
        """
        try:
            self.open(folder, config, resumed_at)
        except UserError:
            raise
        except Exception as error:  # any error of the tracker's server, login or files
            message = first_line(error)
            raise UserError(f"tracker={self.package}: cannot be used ({message})") from error

    @abstractmethod
    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None: ...

    @abstractmethod
    def figures(self, figures: Mapping[str, float], update: int) -> None:
        """Records metrics in the tracker.

        figures: metrics by name, such as validation/bleu
        update: update number
        """

    def text(self, name: str, text: str, update: int) -> None:  # noqa: B027 (not all have it)
        """Records a text, such as sample translations, in the tracker.

        name: name of the text in the tracker
        text: content as Markdown
        update: update number
        """

    def picture(self, name: str, figure: Any, update: int) -> None:  # noqa: B027
        """Records a figure, such as an attention map, in the tracker.

        name: name of the figure in the tracker
        figure: matplotlib figure
        update: update number
        """

    @abstractmethod
    def close(self, results: Mapping[str, float] | None) -> None:
        """Ends the recording of the run in the tracker.

        results: final scores; None if the run was stopped or has failed
        """


def known(folder: Path) -> str | None:
    """Returns the saved id of the run in a tracker, given the run folder; None for a new run."""
    name = read_json_object(folder / KNOWN).get("id")
    return None if name is None else str(name)


def remember(folder: Path, name: str) -> str:
    """Saves the id of the run in a tracker to the run folder, and returns the id."""
    write_atomically(folder / KNOWN, json.dumps({"id": name}).encode())
    return name


FIGURES = ("loss", "rate", "gradient_norm", "speed")
"""Names of the training metrics that are sent to trackers; attributes of `Update`."""


class Tracking(Callback):
    """Callback that sends the metrics of a run to experiment trackers. The constructor starts the
    recording.

    trackers: experiment trackers
    folder: run folder
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
