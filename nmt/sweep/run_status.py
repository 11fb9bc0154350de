"""A run of a sweep, and its state, read from the files in its folder."""

import json
import socket
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.processes import is_running
from nmt.storage.checkpoint import LAST
from nmt.storage.files import read_json_object, write_atomically
from nmt.storage.lock import Holder
from nmt.storage.metrics_file import latest_metrics, read_metrics

RECORD = "sweep.json"
"""File with the record of a sweep on a run."""
LOCK = ".lock"
"""Lock file in a run's folder (training/run_directory.py)."""


class RunState(Enum):
    """Progress of a run."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    HALTED = "left out"
    FINISHED = "finished"


@dataclass(frozen=True)
class Run:
    """A run of a sweep.

    folder: run directory
    key: hash of the configuration and the data
    command: command that trains the run
    overrides: command line of that command
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
        """Whether the run was trained to its end and tested."""
        return (self.folder / "results.json").is_file()

    @property
    def begun(self) -> bool:
        """Whether the run can be resumed."""
        return (self.folder / LAST).is_file()

    @property
    def dropped(self) -> bool:
        """Whether a later command line of the sweep left out this unfinished run."""
        return bool(self.record().get("dropped")) and not self.finished

    def record(self) -> dict[str, Any]:
        """Record of the sweep on the run: failure, attempts, seconds, halted, dropped."""
        return read_json_object(self.folder / RECORD)

    def note(self, **facts: Any) -> None:
        """Adds facts to the record."""
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
        """Process that trains the run; 0 for a process on another machine, None without any."""
        holder = Holder.read(self.folder / LOCK)
        if holder is None:
            return None
        # Processes of another machine are not visible, so the lock counts.
        if holder.host != socket.gethostname():
            return 0
        return holder.process if is_running(holder.process) else None

    def latest(self) -> dict[str, dict[str, Any]]:
        """The latest metrics of each kind, such as `train` and `validation`."""
        return latest_metrics(self.folder)

    def reached(self, epochs: int) -> bool:
        """Whether the run was trained and validated up to an epoch (0: to its end)."""
        return self.finished or (
            epochs > 0 and any(entry.get("epoch", 0) >= epochs for entry in self.validations())
        )

    def validations(self) -> list[dict[str, Any]]:
        """Metrics of all validations, in their order."""
        return [entry for entry in read_metrics(self.folder) if entry["kind"] == "validation"]


def find(folder: Path) -> list[Run]:
    """Earlier runs of the sweep in a folder. Raises UserError if a record is damaged."""
    runs = []
    for file in sorted(folder.glob(f"*/{RECORD}")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            run = Run(
                folder=file.parent,
                key=str(record["key"]),
                command=str(record["command"]),
                overrides=tuple(map(str, record["overrides"])),
                config_dirs=tuple(map(str, record.get("config_dirs", ()))),
                plugins=tuple(map(str, record.get("plugins", ()))),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(
                f"{file}: cannot be read ({error!r}). Move its folder away, or remove it"
            ) from error
        runs.append(run)
    return runs
