"""Experiment trackers: TensorBoard, MLflow, Trackio, and Weights & Biases.

The callback `Tracking` sends training metrics, validation metrics, samples and attention maps to
trackers.
"""

import html
import json
import logging
import os
import re
import textwrap
import uuid
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from nmt.foundation.configurations import flat
from nmt.foundation.errors import UserError, first_line
from nmt.foundation.extras import installed
from nmt.storage.files import read_json_object, write_atomically
from nmt.training.callback import Callback, Update
from nmt.training.task import Validation

log = logging.getLogger(__name__)
KNOWN = "tracker.json"
"""Name of the file in the run folder that contains the run's id in each tracker."""
FIGURES = ("loss", "rate", "gradient_norm", "speed")
"""Names of the training metrics that are sent to trackers; attributes of `Update`."""
LONGEST = 500
"""Maximum length of a parameter value in MLflow, in characters; longer values are truncated."""


class Tracker(ABC):
    """Base class of experiment trackers, which record the configuration and metrics of a run.
    Updates are numbered from 1. A resumed run keeps its id in the tracker."""

    package: str
    """Name of the Python package that the tracker requires."""

    @abstractmethod
    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        """Starts the recording of a run in the tracker.

        folder: run folder
        config: configuration as a mapping from dotted keys to values
        resumed_at: update number at which a resumed run continues; None for a new run
        """

    @abstractmethod
    def figures(self, figures: Mapping[str, float], update: int) -> None:
        """Records metrics in the tracker.

        figures: metric values by name, such as validation/bleu
        update: update number
        """

    def roll_back(self, update: int) -> None:  # noqa: B027 (not all can)
        """Removes the records after an update, because training continues from this update.

        update: number of updates of the restored state
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

        results: final scores, with names such as final/bleu; None if the run was stopped or has
            failed
        """


class TensorBoard(Tracker):
    """TensorBoard tracker, which records metrics, texts and figures in event files in the run
    folder.

    At the end of the run, the tracker records the configuration as hyperparameters, with the final
    scores.
    """

    package = "tensorboard"

    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Events from purge_step on are hidden; those of the update before the resumption are kept.
        purge_step = None if resumed_at is None else resumed_at + 1
        self._folder = folder
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)
        self._config = {
            key: value if isinstance(value, bool | int | float | str) else str(value)
            for key, value in config.items()
        }

    def roll_back(self, update: int) -> None:
        self._writer.close()
        self.open(self._folder, self._config, update)

    def figures(self, figures: Mapping[str, float], update: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, update)

    def text(self, name: str, text: str, update: int) -> None:
        self._writer.add_text(name, text, update)

    def picture(self, name: str, figure: Any, update: int) -> None:
        self._writer.add_figure(name, figure, update)

    def close(self, results: Mapping[str, float] | None) -> None:
        if results is not None:
            # The name "." writes a further event file in the same folder.
            self._writer.add_hparams(self._config, dict(results), run_name=".")
        self._writer.close()


@dataclass(kw_only=True)
class MLflow(Tracker):
    """MLflow tracker, which records metrics, texts and figures on a tracking server or in a folder.

    experiment: name of the MLflow experiment
    uri: address of the server or folder; None for the folder mlruns beside the run folder
    """

    package = "mlflow"
    experiment: str = "nmt"
    uri: str | None = None

    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client = MlflowClient(self.uri or (folder.resolve().parent / "mlruns").as_uri())
        self._run = run_id(folder, self.package, lambda: self._new_run(folder.name, config))
        self._client.update_run(self._run, status="RUNNING")

    def _new_run(self, name: str, config: Mapping[str, Any]) -> str:
        """Creates an MLflow run with the configuration as its parameters, and returns its id."""
        result = self._client.get_experiment_by_name(self.experiment)
        number = result.experiment_id if result else self._client.create_experiment(self.experiment)
        run = self._client.create_run(number, run_name=name).info.run_id
        for key, value in config.items():
            self._client.log_param(run, key, str(value)[:LONGEST])
        return run

    def figures(self, figures: Mapping[str, float], update: int) -> None:
        for name, value in figures.items():
            # MLflow refuses names with other characters.
            valid_name = re.sub(r"[^\w.\-/ :]", "_", name)
            self._client.log_metric(self._run, valid_name, value, step=update)

    def text(self, name: str, text: str, update: int) -> None:
        self._client.log_text(self._run, text, f"{name}-{update:08d}.md")

    def picture(self, name: str, figure: Any, update: int) -> None:
        self._client.log_figure(self._run, figure, f"{name}-{update:08d}.png")

    def close(self, results: Mapping[str, float] | None) -> None:
        self.figures(results or {}, 0)
        self._client.set_terminated(self._run, "FINISHED" if results is not None else "KILLED")


@dataclass(kw_only=True)
class Trackio(Tracker):
    """Trackio tracker, which records metrics and the configuration. The local database is in the
    folder $TRACKIO_DIR, and `trackio show` displays it.

    project: name of the Trackio project
    """

    package = "trackio"
    project: str = "nmt"

    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        import trackio

        self._run = trackio.init(
            project=self.project,
            name=folder.name,
            config=dict(config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
        )

    def figures(self, figures: Mapping[str, float], update: int) -> None:
        self._run.log(dict(figures), step=update)

    def close(self, results: Mapping[str, float] | None) -> None:
        if results:
            self._run.log(dict(results))
        self._run.finish()


@dataclass(kw_only=True)
class Wandb(Tracker):
    """Tracker that records metrics, texts and figures with Weights & Biases.

    project: name of the Weights & Biases project
    mode: "offline" stores the records in the run folder until `wandb sync`; "online" uploads them
    """

    package = "wandb"
    project: str = "nmt"
    mode: Literal["offline", "online"] = "offline"

    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        import wandb

        self._run = wandb.init(
            project=self.project,
            name=folder.name,
            # A unique id, because the folders of two runs may have the same name.
            id=run_id(folder, self.package, lambda: uuid.uuid4().hex),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            mode=self.mode,
            settings=wandb.Settings(console="off", silent=True),
        )

    def figures(self, figures: Mapping[str, float], update: int) -> None:
        self._run.log(dict(figures), step=update)

    def text(self, name: str, text: str, update: int) -> None:
        import wandb

        self._run.log({name: wandb.Html(f"<pre>{html.escape(text)}</pre>")}, step=update)

    def picture(self, name: str, figure: Any, update: int) -> None:
        import wandb

        self._run.log({name: wandb.Image(figure)}, step=update)

    def close(self, results: Mapping[str, float] | None) -> None:
        self._run.summary.update(dict(results or {}))
        self._run.finish()


def run_id(folder: Path, package: str, create: Callable[[], str]) -> str:
    """Returns the id of a run in a tracker, read from the run folder. If the run folder contains no
    id of this tracker, `create` is called, and its result is saved.

    folder: run folder
    package: name of the tracker's Python package
    create: function that creates a run in the tracker and returns its id
    """
    saved = read_json_object(folder / KNOWN)
    if package not in saved:
        # Older versions stored the id of the only tracker as "id".
        saved = {package: saved.get("id") or create()} | saved
        write_atomically(folder / KNOWN, json.dumps(saved).encode())
    return str(saved[package])


class Tracking(Callback):
    """Callback that sends the metrics of a run to experiment trackers. The constructor starts the
    recording, and raises UserError if a tracker cannot be used.

    trackers: experiment trackers
    folder: run folder
    config: configuration
    resumed_at: update number at which a resumed run continues; None for a new run
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        folder: Path,
        config: Mapping[str, Any],
        resumed_at: int | None,
    ) -> None:
        self.trackers = [*trackers]
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        for tracker in self.trackers:
            try:
                tracker.open(folder, flat(config), resumed_at)
                if resumed_at is None:
                    # Indented text is a code block in Markdown.
                    tracker.text("config", textwrap.indent(text, "    "), 0)
            except Exception as error:  # any error of the tracker's server, login or files
                raise UserError(
                    f"tracker={tracker.package}: cannot be used ({first_line(error)})"
                ) from error

    def on_update(self, update: Update) -> None:
        figures = {f"train/{name}": getattr(update, name) for name in FIGURES}
        self._record(lambda tracker: tracker.figures(figures, update.update))

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        figures = {f"validation/{name}": value for name, value in validation.metrics.items()}

        def record(tracker: Tracker) -> None:
            tracker.figures(figures, update)
            if validation.samples:
                tracker.text("validation/samples", validation.samples, update)
            if validation.attention is not None and installed("matplotlib"):
                plot = validation.attention.plot()
                # Matplotlib warns of each character that no installed font has.
                with warnings.catch_warnings(action="ignore", category=UserWarning):
                    tracker.picture("validation/attention", plot, update)

        self._record(record)

    def on_rollback(self, update: int) -> None:
        self._record(lambda tracker: tracker.roll_back(update))

    def on_end(self, results: Mapping[str, float] | None) -> None:
        """Ends the recording in all trackers.

        results: final scores; None if the run was stopped or has failed
        """
        final = results and {f"final/{name}": value for name, value in results.items()}
        self._record(lambda tracker: tracker.close(final))

    def _record(self, call: Callable[[Tracker], None]) -> None:
        """Calls a function with each tracker. After an error, a tracker is not used any more, and
        the training continues, because metrics.jsonl contains all figures."""
        for tracker in [*self.trackers]:
            try:
                call(tracker)
            except Exception as error:  # any error of the tracker's server or files
                log.warning("tracker=%s: stops recording (%s)", tracker.package, first_line(error))
                self.trackers.remove(tracker)
