"""A file with a line for every call of the trainer."""

from collections.abc import Mapping
from pathlib import Path

from nmt.training.callback import Callback, Update
from nmt.training.task import Validation


class Notes(Callback):
    """file: name of the file."""

    def __init__(self, *, file: str = "notes.txt") -> None:
        self.file = Path(file)

    def on_update(self, update: Update) -> None:
        self.add(f"update {update.update} of {update.total}")

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        self.add(f"validation {update} {epoch:g} {sorted(validation.metrics)[0]} {best}")

    def on_epoch(self, epoch: int) -> None:
        self.add(f"epoch {epoch}")

    def on_end(self, results: Mapping[str, float] | None) -> None:
        self.add("stopped" if results is None else f"end {sorted(results)[0]}")

    def add(self, line: str) -> None:
        """Appends a line to the file."""
        with self.file.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
