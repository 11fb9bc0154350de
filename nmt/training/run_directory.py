"""The run directory: everything that one training leaves behind.

config.yaml          the resolved configuration               best.safetensors   the best model (see checkpoint.py)
run.json             versions, command, data fingerprint      last.safetensors   everything needed to resume
train.log            what was printed                         learning_curve.png, attention.png
metrics.jsonl        all figures, one JSON object per line    results.json       final scores with signatures
events.out.tfevents  the same for TensorBoard                 test.txt           translations of the test part
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import itertools
import json
import logging
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

import nmt
from nmt.foundation.errors import UserError, typed
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import remove_unfinished, write_atomically
from nmt.storage.lock import Lock
from nmt.storage.metrics_file import read_metrics
from nmt.training.trainer import Update

log = logging.getLogger(__name__)


@functools.cache
def versions() -> Mapping[str, str]:
    """Versions of everything that can change a result."""
    packages = (
        "torch",
        "numpy",
        "sentencepiece",
        "sacrebleu",
        "datasets",
        "hydra-core",
        "babel",
        "num2words",
    )
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "nmt": nmt.__version__,
    }
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


LOCK = ".lock"
BEGINNING = ("run.json", "config.yaml", "metrics.jsonl", "train.log", "learning_curve.png")
"""Files that a run has written before its first validation is over, beside checkpoints and TensorBoard's events."""


def claim(path: Path) -> Lock:
    """Makes a folder this process's own for a new run. A folder without a checkpoint is free: what a run that did not get so
    far has left in it is removed. Raises UserError if it holds a run, or if another process is writing in it."""
    new = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = Lock(path / LOCK, f"run_dir={path}")
    except OSError as error:
        raise UserError(f"run_dir={path}: cannot be made ({error.strerror})") from error
    except UserError:
        if new:
            path.rmdir()
        raise
    holds = [name for name in (ckpt.LAST, ckpt.BEST) if (path / name).exists()]
    if holds:
        lock.release()
        raise UserError(
            f"run_dir={path} holds another run ({', '.join(holds)}): continue it with {typed(resume=path)}, or choose "
            "another"
        )
    others = [name for name in BEGINNING if (path / name).exists() and name != "train.log"]
    if others and not _is_record(path / "run.json"):
        lock.release()
        raise UserError(
            f"run_dir={path} holds files that no run has written ({', '.join(others)}): choose another"
        )
    remove_unfinished(path)
    if others:
        clear(path)
    return lock


def _is_record(file: Path) -> bool:
    """Whether nmt wrote this run.json, which is the first file of a run."""
    try:
        return {"commands", "versions"} <= set(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def claim_fresh(base: Path) -> tuple[Path, Lock]:
    """A new folder of that name, or with a number behind it if there is one already, and its lock."""
    base.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"run_dir={path}: cannot be made ({error.strerror})") from error
        return path, Lock(path / LOCK, f"run_dir={path}")
    raise AssertionError("itertools.count has an end")


def clear(path: Path) -> None:
    """Removes what a run has left in its folder that was not yet validated."""
    remove_unfinished(path)
    checkpoints = (
        ckpt.BEST,
        ckpt.LAST,
        "validation-*.txt",
        "last-*.safetensors",
        "snapshot-*.safetensors",
        "events.out.tfevents.*",
    )
    for file in itertools.chain(*(path.glob(pattern) for pattern in (*BEGINNING, *checkpoints))):
        with contextlib.suppress(OSError):
            file.unlink()


class RunDirectory:
    """A folder that one run owns; checkpoints, figures and records go into it. `keep`: how many checkpoints."""

    def __init__(
        self,
        path: Path,
        meta: Mapping[str, Any],
        fixed: Mapping[str, Tensor],
        resume_at: int | None,
        *,
        keep: int = 1,
    ) -> None:
        self.path, self.meta, self.fixed, self.keep = path, dict(meta), dict(fixed), keep
        if resume_at is not None:
            self._forget_after(resume_at)

    def describe(self, config: Mapping[str, Any], fingerprints: Mapping[str, str]) -> None:
        """Writes run.json, which keeps every command, and config.yaml."""
        threads = torch.get_num_threads()
        record = {
            "commands": [*self._commands(), sys.argv],
            "versions": versions(),
            "threads": threads,
            "data": dict(fingerprints),
        }
        self.write_text(
            "run.json", json.dumps(record, indent=2) + "\n"
        )  # the first file: see _is_record
        self.write_text(
            "config.yaml", yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        )

    def _commands(self) -> list[Any]:
        """What was typed before. A damaged record is no reason to stop."""
        try:
            found = json.loads((self.path / "run.json").read_text(encoding="utf-8"))["commands"]
            return found if isinstance(found, list) else []
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            log.warning(
                "%s: cannot be read; earlier commands are forgotten", self.path / "run.json"
            )
            return []

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text.encode())

    # Store: where the trainer keeps checkpoints

    def save_last(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        ckpt.write(
            self.path / ckpt.LAST, {**self.meta, "training": state}, {**self.fixed, **tensors}
        )
        if self.keep > 1:
            self._keep_last(state["progress"]["update"])

    def load_last(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        saved = ckpt.read(self.path / ckpt.LAST)
        return saved.meta["training"], saved.tensors

    def _keep_last(self, update: int) -> None:
        """Gives the last checkpoint a name of its own, which lasts, and removes the oldest ones."""
        file = self.path / f"last-{update:08d}.safetensors"
        with contextlib.suppress(FileExistsError):
            try:
                os.link(self.path / ckpt.LAST, file)
            except (OSError, NotImplementedError):  # a file system without links
                shutil.copyfile(self.path / ckpt.LAST, file)
        for old in sorted(self.path.glob("last-*.safetensors"))[: -self.keep]:
            old.unlink(missing_ok=True)

    def save_best(self, state: dict[str, Any], weights: dict[str, Tensor]) -> None:
        tensors = {f"model/{name}": t for name, t in weights.items()}
        ckpt.write(self.path / ckpt.BEST, {**self.meta, **state}, {**self.fixed, **tensors})

    def save_snapshot(self, update: int, weights: dict[str, Tensor], keep: Sequence[int]) -> None:
        if update in keep:
            ckpt.write(self._snapshot(update), {}, weights)
        for file in self.path.glob("snapshot-*.safetensors"):
            if file not in [self._snapshot(u) for u in keep]:
                file.unlink()

    def average(self, updates: Sequence[int]) -> dict[str, Tensor]:
        parts = [ckpt.read(self._snapshot(update)).tensors for update in updates]
        return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}

    def _snapshot(self, update: int) -> Path:
        return self.path / f"snapshot-{update:08d}.safetensors"

    # Observer: figures as they come

    def on_update(self, update: Update) -> None:
        self.record({"kind": "train", **vars(update)})

    def on_validation(
        self, update: int, epoch: float, metrics: dict[str, float], best: bool
    ) -> None:
        self.record(
            {"kind": "validation", "update": update, "epoch": epoch, "best": best, **metrics}
        )

    def record(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to metrics.jsonl."""
        try:
            with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.path}/metrics.jsonl: cannot be written ({error.strerror})"
            ) from error

    def records(self) -> list[dict[str, Any]]:
        return read_metrics(self.path)

    def _forget_after(self, update: int) -> None:
        """Drops what was recorded after the checkpoint that is resumed: it will be done again."""
        kept = [entry for entry in self.records() if entry["update"] <= update]
        self.write_text("metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept))
