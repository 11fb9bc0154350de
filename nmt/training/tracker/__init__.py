"""Programs that draw figures while a model is trained: TensorBoard, and others if they are chosen.

Read: this file, tensorboard, the rest in any order.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UserError, first_line
from nmt.storage.files import read_json_object, write_atomically

KNOWN = "tracker.json"
"""File of a run directory with the tracker's name of the run."""


class Tracker(ABC):
    """Receives the configuration and figures of a run. Updates count from 1; a resumed run keeps
    its name."""

    package: str
    """Package that must be installed."""

    def begin(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None:
        """Begins to record a run.

        folder: run directory
        config: flat configuration
        resumed_at: update from which a resumed run continues; None: a new run

        Raises UserError if the tracker cannot be used.
        """
        try:
            self.open(folder, config, resumed_at)
        except UserError:
            raise
        except Exception as error:  # any error of its server, login or files
            message = first_line(error)
            raise UserError(f"tracker={self.package}: cannot be used ({message})") from error

    @abstractmethod
    def open(self, folder: Path, config: Mapping[str, Any], resumed_at: int | None) -> None: ...

    @abstractmethod
    def figures(self, figures: Mapping[str, float], update: int) -> None:
        """Records numbers.

        figures: numbers by names such as validation/bleu
        update: update to which they belong
        """

    def text(self, name: str, text: str, update: int) -> None:  # noqa: B027 (not all have it)
        """Records a text.

        name: name of the text
        text: Markdown
        update: update to which it belongs
        """

    def picture(self, name: str, figure: Any, update: int) -> None:  # noqa: B027
        """Records a picture.

        name: name of the picture
        figure: a matplotlib figure
        update: update to which it belongs
        """

    @abstractmethod
    def close(self, results: Mapping[str, float] | None) -> None:
        """Ends the record of the run.

        results: final scores; None: stopped or failed
        """


def known(folder: Path) -> str | None:
    """The tracker's name of a run, which it keeps when it is resumed; None for a new run."""
    name = read_json_object(folder / KNOWN).get("id")
    return None if name is None else str(name)


def remember(folder: Path, name: str) -> str:
    """Keeps the tracker's name of a run; returns it.

    folder: run directory
    name: name that the tracker has given
    """
    write_atomically(folder / KNOWN, json.dumps({"id": name}).encode())
    return name
