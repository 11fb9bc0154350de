"""Status of the runs of a sweep, read from the files in the run folders."""

import json
import re
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.processes import is_running
from nmt.storage.files import LAST, LOCK, read_json_object, write_atomically
from nmt.storage.lock import Holder
from nmt.storage.metrics_file import TAIL, read_metrics

RECORD = "sweep.json"
"""Name of the file in a run folder in which the sweep records attempts and failures."""
WARNING = re.compile(r"^\S+ \S+ WARNING (.*)", re.MULTILINE)
"""Regular expression for the first line of a warning in a log file."""


class RunState(Enum):
    """State of a run in a sweep."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    HALTED = "eliminated"
    FINISHED = "finished"


@dataclass(frozen=True)
class Run:
    """A run of a sweep.

    folder: run folder
    key: hash of the configuration and the data
    command: command that trains the run, such as `train`
    overrides: command-line overrides of the run
    config_dirs: further folders of configuration files (--config-dir)
    plugins: packages outside nmt (--plugins)
    """

    folder: Path
    key: str
    command: str
    overrides: tuple[str, ...]
    config_dirs: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> RunState:
        if self.holder() is not None:
            return RunState.RUNNING
        if self.finished:
            return RunState.FINISHED
        record = self.record()
        if record.get("failure"):
            return RunState.FAILED
        if record.get("halted"):
            return RunState.HALTED
        return RunState.STOPPED if self.begun else RunState.WAITING

    @property
    def finished(self) -> bool:
        """Whether the run folder has results.json, written at the end of the training."""
        return (self.folder / "results.json").is_file()

    @property
    def begun(self) -> bool:
        """Whether the run has a checkpoint from which the training can be resumed."""
        return (self.folder / LAST).is_file()

    @property
    def dropped(self) -> bool:
        """Whether the sweep was started again with settings that do not include this unfinished run."""
        return bool(self.record().get("dropped")) and not self.finished

    def record(self) -> dict[str, Any]:
        """Returns the sweep's record of the run, with keys such as failure and attempts."""
        return read_json_object(self.folder / RECORD)

    def note(self, **facts: Any) -> None:
        """Adds entries to the sweep's record of the run, which is a file in the run folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {
            **self.record(),
            "key": self.key,
            "command": self.command,
            "overrides": list(self.overrides),
            "config_dirs": list(self.config_dirs),
            "plugins": list(self.plugins),
            **facts,
        }
        text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
        write_atomically(self.folder / RECORD, text.encode())

    def holder(self) -> int | None:
        """Returns the id of the process that trains the run; None if no process trains the run.

        The id is 0 for a process on another machine.
        """
        holder = Holder.read(self.folder / LOCK)
        if holder is None:
            return None
        # Processes on other machines cannot be checked; the lock file is trusted.
        if holder.host != socket.gethostname():
            return 0
        return holder.process if is_running(holder.process) else None

    def warnings(self) -> list[str]:
        """Returns the warnings in the log file of the run, in chronological order."""
        file = self.folder / "train.log"
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        return WARNING.findall(text)

    def latest(self) -> dict[str, dict[str, Any]]:
        """Returns the run's latest metrics of each kind, such as `train` and `validation`."""
        return {entry["kind"]: entry for entry in read_metrics(self.folder, TAIL)}

    def reached(self, epochs: int) -> bool:
        """Returns whether the run has been trained and validated up to an epoch.

        epochs: number of the epoch, from 1; 0 for the end of the training
        """
        return self.finished or (
            epochs > 0 and any(entry.get("epoch", 0) >= epochs for entry in self.validations())
        )

    def validations(self) -> list[dict[str, Any]]:
        """Returns the metrics of all validations of the run, in chronological order."""
        return [entry for entry in read_metrics(self.folder) if entry["kind"] == "validation"]


def find(folder: Path) -> list[Run]:
    """Returns the runs in a sweep folder. Raises UserError if the record of a run is damaged."""
    runs = []
    for file in sorted(folder.glob(f"*/{RECORD}")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            runs.append(
                Run(
                    folder=file.parent,
                    key=str(record["key"]),
                    command=str(record["command"]),
                    overrides=tuple(map(str, record["overrides"])),
                    config_dirs=tuple(map(str, record.get("config_dirs", ()))),
                    plugins=tuple(map(str, record.get("plugins", ()))),
                )
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{file}: cannot be read ({error!r}). Move or remove the folder {file.parent}"
            ) from error
    return runs
