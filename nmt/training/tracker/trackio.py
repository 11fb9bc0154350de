"""Trackio tracker: metrics in a local database, displayed by `trackio show`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.training.tracker import Tracker


class Trackio(Tracker):
    """Trackio tracker, which records metrics and the configuration. The local database is in the
    folder $TRACKIO_DIR.

    project: name of the Trackio project
    """

    package = "trackio"

    def __init__(self, *, project: str = "nmt") -> None:
        self.project = project

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
            self._run.log({f"final/{name}": value for name, value in results.items()})
        self._run.finish()
