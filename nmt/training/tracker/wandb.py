"""Weights & Biases tracker: metrics, texts and figures, online or offline."""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nmt.training.tracker import Tracker, known, remember


class Wandb(Tracker):
    """Tracker that records metrics, texts and figures with Weights & Biases.

    project: name of the Weights & Biases project
    mode: "offline" stores the records in the run folder until `wandb sync`; "online" uploads them
    """

    package = "wandb"

    def __init__(
        self, *, project: str = "nmt", mode: Literal["offline", "online"] = "offline"
    ) -> None:
        self.project = project
        self.mode = mode

    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        import wandb

        self._run = wandb.init(
            project=self.project,
            name=folder.name,
            # A unique id, because the folders of two runs may have the same name.
            id=known(folder) or remember(folder, uuid.uuid4().hex),
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

        self._run.log({name: wandb.Html(f"<pre>{text}</pre>")}, step=update)

    def picture(self, name: str, figure: Any, update: int) -> None:
        import wandb

        self._run.log({name: wandb.Image(figure)}, step=update)

    def close(self, results: Mapping[str, float] | None) -> None:
        for name, value in (results or {}).items():
            self._run.summary[f"final/{name}"] = value
        self._run.finish()
