"""Run folder: the folder with all files of one training run.

config.yaml          resolved configuration
run.json             versions, commands, hashes of the data
train.log            log messages
metrics.jsonl        training and validation metrics, one JSON object per line
events.out.tfevents  metrics for TensorBoard
best.safetensors     weights of the best validation
last.safetensors     training state, to resume from
results.json         final scores with signatures
test.txt             translations of the test set, also test.source.txt and test.reference.txt
learning_curve.png   learning curve
attention.png        attention of a few validation sentences
"""

import contextlib
import functools
import importlib.metadata
import itertools
import json
import logging
import platform
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

import nmt
from nmt.foundation.devices import find_device, processor_name
from nmt.foundation.errors import UsageError, UserError, typed
from nmt.foundation.json_log import for_json
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import LOCK, read_json_object, remove_unfinished, write_atomically
from nmt.storage.lock import Lock, LockHeld
from nmt.storage.metrics_file import read_metrics
from nmt.training.callback import Callback, Update
from nmt.training.task import Validation

log = logging.getLogger(__name__)


PACKAGES = (
    "torch",
    "numpy",
    "sentencepiece",
    "sacrebleu",
    "datasets",
    "hydra-core",
    "babel",
    "num2words",
)
"""Names of the packages whose version can affect the results of a run; recorded in run.json."""
RECORD = "run.json"
"""Name of the first file that a run writes, which contains versions and commands."""
BEGINNING = (
    RECORD, "config.yaml", "metrics.jsonl", "train.log", "learning_curve.png", "tracker.json",
)  # fmt: skip
"""Names of the files that a run may write before the end of its first validation, except
checkpoints and TensorBoard events."""
OUTPUTS = ("results.json", "attention.*", "validation*.txt", "test*.txt", "events.out.tfevents.*")
"""File names and glob patterns of the other files that a run writes."""
DIGITS = "[0-9]" * 8
"""Glob pattern of the number of updates in file names."""
CHECKPOINTS = (ckpt.BEST, ckpt.LAST, f"last-{DIGITS}.safetensors", f"snapshot-{DIGITS}.safetensors")
"""File names and glob patterns of the checkpoints in a run folder."""
INITIAL = "last-00000000.safetensors"
"""Name of the checkpoint of a run with `trainer.keep` before its first update."""


def snapshot_file(folder: Path, update: int) -> Path:
    """Returns the path of the weights after an update that `trainer.average` may average.

    folder: run folder
    """
    return folder / f"snapshot-{update:08d}.safetensors"


@functools.cache
def versions() -> Mapping[str, str]:
    """Returns the versions of Python and of all packages that can affect the results, and the
    platform."""
    result = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "nmt": nmt.__version__,
    }
    for package in PACKAGES:
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            result[package] = "not installed"
    return result


def git_commit() -> str | None:
    """Returns the commit of nmt's git checkout, followed by + if tracked files are modified; None
    if nmt does not run from a git checkout."""
    root = Path(nmt.__file__).parent.parent
    if not (root / ".git").exists() or shutil.which("git") is None:
        return None
    options = ["--always", "--exclude=*", "--abbrev=40", "--dirty=+"]  # without names of tags
    described = subprocess.run(["git", "-C", root, "describe", *options], capture_output=True)
    return described.stdout.decode().strip() or None


def claim(path: Path) -> Lock:
    """Locks a folder for a new run of this process, and returns the lock. Files left by a run that
    ended before its first checkpoint are removed.

    path: run folder, created if missing

    Raises UserError if the folder contains another run, or if another process is using it.
    """
    lock = Lock(path / LOCK, f"run_dir={path}")
    try:
        _check_free(path)
    except UserError:
        lock.release()
        raise
    remove_unfinished(path)
    if (path / RECORD).exists():
        clear(path)
    return lock


def _check_free(path: Path) -> None:
    """Raises UserError if a folder contains another run, or files that do not belong to a run."""
    saved = [name for name in (ckpt.LAST, ckpt.BEST) if (path / name).exists()]
    others = {file.name for pattern in CHECKPOINTS for file in path.glob(pattern)}
    if not saved and (others - {INITIAL} or (path / "results.json").exists()):
        raise UsageError(
            f"run_dir={path} contains files of another run, but neither {ckpt.LAST} nor "
            f"{ckpt.BEST}: choose another folder"
        )
    if saved:
        raise UsageError(
            f"run_dir={path} contains another run ({', '.join(saved)}): resume it with "
            f"{typed(resume=path)}, or choose another folder"
        )
    patterns = (*BEGINNING, *OUTPUTS, *CHECKPOINTS)
    written = {file.name for pattern in patterns for file in path.glob(pattern)}
    files = sorted(written - {"train.log"})
    if files and not {"commands", "versions"} <= read_json_object(path / RECORD).keys():
        raise UsageError(
            f"run_dir={path} contains files that do not belong to a run ({', '.join(files)}): "
            "choose another folder"
        )


def claim_fresh(base: Path) -> tuple[Path, Lock]:
    """Creates and locks a new folder, and returns its path and lock. Raises UserError if the
    folder cannot be created.

    base: preferred path of the folder; a number is appended if the path exists
    """
    path = base
    for number in itertools.count(2):
        # Another process may create the same folder at the same time.
        with contextlib.suppress(LockHeld):
            if not path.exists():
                lock = claim(path)
                break
        path = base.with_name(f"{base.name}-{number}")
    return path, lock


def clear(path: Path, kept: Collection[str] = ()) -> None:
    """Removes all files of a run that ended before its first checkpoint from its run folder.

    path: run folder
    kept: names of files that stay
    """
    remove_unfinished(path)
    answers = (f"validation-{DIGITS}.txt", f"validation-{DIGITS}.average.txt")
    patterns = (*BEGINNING, *CHECKPOINTS, *answers, "events.out.tfevents.*")
    for file in {file for pattern in patterns for file in path.glob(pattern)}:
        if file.name not in kept:
            with contextlib.suppress(OSError):
                file.unlink()


def started_in(path: Path) -> str | None:
    """Returns the working directory in which a run was started, the base of the relative paths in
    its configuration; None if unknown."""
    folder = read_json_object(path / RECORD).get("started_in")
    return folder if isinstance(folder, str) else None


@dataclass(frozen=True, kw_only=True)
class RunDirectory(Callback):
    """Run folder of a training run. It stores the checkpoints and, as a callback, writes the
    metrics file.

    path: path of the run folder
    meta: entries added to the header of every checkpoint
    tensors: tensors added to every checkpoint, such as the tokenizer
    keep: number of most recent checkpoints to keep
    keep_answers: whether to keep the outputs (translations or labels) of every validation
    """

    path: Path
    meta: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    keep: int = 1
    keep_answers: bool = False

    def describe(self, config: Mapping[str, Any], fingerprints: Mapping[str, str]) -> None:
        """Writes run.json and config.yaml. The commands of earlier starts of the run are kept in
        run.json."""
        file = self.path / RECORD
        device = find_device(str(config.get("device", "cpu")))
        commands = read_json_object(file).get("commands")
        if not isinstance(commands, list):
            commands = []
            if file.exists():
                log.warning("%s: cannot be read; the record of earlier commands is lost", file)
        record = {
            "commands": [*commands, sys.argv],
            "started_in": started_in(self.path) or str(Path.cwd()),
            "versions": versions(),
            "commit": git_commit(),  # results can be traced to the code
            "threads": torch.get_num_threads(),
            "device": device.type,
            "processor": processor_name(device),
            "data": dict(fingerprints),
        }
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        # run.json must be the first file, because _check_free depends on it.
        self.write_text(RECORD, json.dumps(record, indent=2) + "\n")
        self.write_text("config.yaml", text)

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text.encode())

    def write_lines(self, name: str, lines: Sequence[str]) -> None:
        """Writes a text file, one string per line. Line breaks within a string become spaces."""
        self.write_text(name, "".join(line.replace("\n", " ") + "\n" for line in lines))

    # Methods of `Store`

    def save_last(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        meta = {**self.meta, "training": state}
        num_copies = self.keep if self.keep > 1 else 0
        copy = self.path / f"last-{state['progress']['update']:08d}.safetensors"
        for file in (self.path / ckpt.LAST, copy) if num_copies else (self.path / ckpt.LAST,):
            ckpt.write(file, meta, {**self.tensors, **tensors})
        copies = sorted(self.path.glob(f"last-{DIGITS}.safetensors"), reverse=True)
        # After a return to an earlier state, the copies with higher numbers are outdated.
        latest = [file for file in copies if file <= copy][:num_copies]
        # The saved state named its snapshots until it was replaced.
        named = [snapshot_file(self.path, update) for update, _ in state["progress"]["snapshots"]]
        for old in {*copies, *self.path.glob(f"snapshot-{DIGITS}.safetensors")} - {*latest, *named}:
            old.unlink(missing_ok=True)

    def load_last(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        saved = ckpt.read(self.path / ckpt.LAST)
        return saved.meta["training"], saved.tensors

    def save_best(self, state: dict[str, Any], weights: dict[str, Tensor]) -> None:
        self._save_model(self.path / ckpt.BEST, state, weights)

    def save_snapshot(self, update: int, weights: dict[str, Tensor]) -> None:
        self._save_model(snapshot_file(self.path, update), {"update": update}, weights)

    def _save_model(
        self, file: Path, state: Mapping[str, Any], weights: Mapping[str, Tensor]
    ) -> None:
        model = {f"model/{name}": tensor for name, tensor in weights.items()}
        ckpt.write(file, {**self.meta, **state}, {**self.tensors, **model})

    def average(self, updates: Sequence[int]) -> dict[str, Tensor]:
        snapshots = [ckpt.read(snapshot_file(self.path, update)) for update in updates]
        # Snapshots of older versions contain only weights.
        parts = [saved.weights or saved.tensors for saved in snapshots]
        return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}

    # Methods of `Callback`

    def on_update(self, update: Update) -> None:
        self.record({"kind": "train", **for_json(vars(update))})

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        entry = {"kind": "validation", "update": update, "epoch": epoch, "best": best}
        averaged = {"averaged": True} if validation.averaged else {}
        self.record({**entry, **averaged, **validation.metrics})
        if self.keep_answers:
            suffix = ".average" if validation.averaged else ""
            self.write_lines(f"validation-{update:08d}{suffix}.txt", validation.answers)

    def on_rollback(self, update: int, validated: int | None = None, averaged: bool = True) -> None:
        """Removes the records that a run repeats after a rollback, or when it is resumed, from
        metrics.jsonl.

        update: number of updates of the restored state; later updates are repeated
        validated: update after which the restored state was validated; None for `update`
        averaged: whether the restored state is that after the validation of the averaged weights
        """

        def is_kept(entry: Mapping[str, Any]) -> bool:
            if entry["update"] != update:
                return entry["update"] < update
            if entry.get("averaged"):
                return averaged
            return validated in (None, update) or entry["kind"] == "train"

        entries = filter(is_kept, read_metrics(self.path))
        self.write_lines("metrics.jsonl", [json.dumps(entry) for entry in entries])

    def record(self, entry: Mapping[str, Any]) -> None:
        """Appends a record (JSON object) to metrics.jsonl, as one line."""
        try:
            with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.path}/metrics.jsonl: cannot be written ({error.strerror})"
            ) from error
