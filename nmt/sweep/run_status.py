"""One run of a sweep, as its folder tells it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UserError
from nmt.storage.files import write_atomically

RECORD = "sweep.json"
LOCK = ".lock"
"""Of the run itself; see training/run_directory.py."""
TAIL = 20_000
"""Bytes at the end of metrics.jsonl in which the latest figures are."""


class RunState(Enum):
    """How far a run is."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    HALTED = "left out"
    FINISHED = "finished"


@dataclass(frozen=True)
class Run:
    """A run of a sweep: its folder; a key that no other configuration and data have; the command and its overrides."""

    folder: Path
    key: str
    command: str
    overrides: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def state(self) -> RunState:
        if self.holder() is not None:
            return RunState.RUNNING
        if (self.folder / "results.json").is_file():
            return RunState.FINISHED
        if self.record().get("failure"):
            return RunState.FAILED
        if self.record().get("halted"):
            return RunState.HALTED
        return (
            RunState.STOPPED if (self.folder / "last.safetensors").is_file() else RunState.WAITING
        )

    def record(self) -> dict[str, Any]:
        """What is kept of the run besides what it writes itself: failure, attempts, seconds, halted."""
        try:
            found = json.loads((self.folder / RECORD).read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError, RecursionError):
            return {}

    def note(self, **facts: Any) -> None:
        """Adds to the record."""
        self.folder.mkdir(parents=True, exist_ok=True)
        of_run = {"key": self.key, "command": self.command, "overrides": list(self.overrides)}
        record = {**self.record(), **of_run, **facts}
        write_atomically(
            self.folder / RECORD, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()
        )

    def holder(self) -> int | None:
        """The process that is training it on this machine; 0 if it is on another one."""
        try:
            found = json.loads((self.folder / LOCK).read_text(encoding="utf-8"))
            process, host = int(found["process"]), found["host"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        if host != socket.gethostname():
            return 0
        return process if alive(process) else None

    def latest(self) -> dict[str, dict[str, Any]]:
        """The last figures of training and of validation."""
        found: dict[str, dict[str, Any]] = {}
        for entry in _tail(self.folder / "metrics.jsonl"):
            found[str(entry.get("kind"))] = entry
        return found

    def reached(self, epochs: int) -> bool:
        """Whether it was trained, and validated, that far (0: to its end)."""
        if (self.folder / "results.json").is_file():
            return True
        return epochs > 0 and any(entry.get("epoch", 0) >= epochs for entry in self.validations())

    def validations(self) -> list[dict[str, Any]]:
        """The figures of all validations, in their order."""
        return [entry for entry in records(self.folder) if entry.get("kind") == "validation"]


def records(folder: Path) -> list[dict[str, Any]]:
    """All figures of a run; a last line that is half-written is left out."""
    try:
        lines = (folder / "metrics.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    return list(_entries(lines))


def _tail(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with open(file, "rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - TAIL))
            lines = opened.read().splitlines()
    except OSError:
        return iter(())
    return _entries(lines)


def _entries(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            yield entry


def alive(process: int) -> bool:
    """Whether a process of this machine is there, and not merely unburied."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in (
            "Z",
            "X",
        )
    except (OSError, IndexError):
        return True


def find(folder: Path) -> list[Run]:
    """The runs of a sweep that are there already. Raises UserError if one's record is damaged."""
    found = []
    for file in sorted(folder.glob(f"*/{RECORD}")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            run = Run(
                file.parent,
                str(record["key"]),
                str(record["command"]),
                tuple(map(str, record["overrides"])),
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(
                f"{file}: cannot be read ({error!r}). Move its folder away, or remove it"
            ) from error
        found.append(run)
    return found
