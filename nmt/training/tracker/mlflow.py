"""MLflow tracker: metrics, texts and figures on an MLflow server or in a folder."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.training.tracker import Tracker, known, remember

LONGEST = 500
"""Maximum length of a recorded parameter value, in characters; longer values are truncated."""


class MLflow(Tracker):
    """MLflow tracker, which records metrics on a tracking server or in a folder.

    experiment: name of the MLflow experiment
    uri: address of the server or folder; None for the folder mlruns beside the run folder
    """

    package = "mlflow"

    def __init__(self, *, experiment: str = "nmt", uri: str | None = None) -> None:
        self.experiment = experiment
        self.uri = uri

    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client = MlflowClient(self.uri or (folder.resolve().parent / "mlruns").as_uri())
        self._run = known(folder) or ""
        if self._run:
            return
        result = self._client.get_experiment_by_name(self.experiment)
        number = result.experiment_id if result else self._client.create_experiment(self.experiment)
        run = self._client.create_run(number, run_name=folder.name)
        self._run = remember(folder, run.info.run_id)
        for key, value in config.items():
            self._client.log_param(self._run, key, str(value)[:LONGEST])

    def figures(self, figures: Mapping[str, float], update: int) -> None:
        for name, value in figures.items():
            self._client.log_metric(self._run, name, value, step=update)

    def text(self, name: str, text: str, update: int) -> None:
        self._client.log_text(self._run, text, f"{name}-{update:08d}.md")

    def picture(self, name: str, figure: Any, update: int) -> None:
        self._client.log_figure(self._run, figure, f"{name}-{update:08d}.png")

    def close(self, results: Mapping[str, float] | None) -> None:
        for name, value in (results or {}).items():
            self._client.log_metric(self._run, f"final/{name}", value)
        self._client.set_terminated(self._run, "FINISHED" if results is not None else "KILLED")
