"""The run directory: everything that one training leaves behind.

config.yaml          the resolved configuration               best.safetensors   the best model (see checkpoint.py)
run.json             versions, command, data fingerprint      last.safetensors   everything needed to resume
train.log            what was printed                         learning_curve.png, attention.png
metrics.jsonl        all figures, one JSON object per line    results.json       final scores with signatures
events.out.tfevents  the same for TensorBoard                 test.txt           translations of the test part
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.foundation.errors import UserError
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import write_atomically
from nmt.training.trainer import Update


def versions() -> dict[str, str]:
    """Versions of everything that can change a result."""
    packages = ("nmt", "torch", "numpy", "sentencepiece", "sacrebleu", "datasets", "hydra-core", "babel", "num2words")
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            from nmt import __version__

            found[package] = __version__ if package == "nmt" else "not installed"
    return found


class RunDirectory:
    """A folder that one run owns; checkpoints, figures and records go into it.

    Raises UserError if the folder holds another run (unless resuming) or cannot be written.
    """

    def __init__(self, path: Path, meta: Mapping[str, Any], fixed: Mapping[str, Tensor], resume_at: int | None) -> None:
        self.path, self.meta, self.fixed = path, dict(meta), dict(fixed)
        self._writer: Any = None
        self._resume_at = resume_at
        if resume_at is not None:
            self._forget_after(resume_at)

    @staticmethod
    def claim(path: Path) -> None:
        """Makes the folder. Raises UserError if it holds another run."""
        holds = [name for name in ("config.yaml", ckpt.LAST, ckpt.BEST, "metrics.jsonl") if (path / name).exists()]
        if holds:
            raise UserError(
                f"run_dir={path} holds another run ({', '.join(holds)}): continue it with resume={path}, or choose another"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run_dir={path}: cannot be made ({error.strerror})") from error

    def describe(self, config: Mapping[str, Any], fingerprints: Mapping[str, str]) -> None:
        """Writes config.yaml and run.json; run.json also keeps the commands of earlier starts."""
        from omegaconf import OmegaConf

        self.write_text("config.yaml", OmegaConf.to_yaml(OmegaConf.create(dict(config))))
        file = self.path / "run.json"
        before = json.loads(file.read_text(encoding="utf-8")).get("commands", []) if file.exists() else []
        record = {"commands": [*before, sys.argv], "versions": versions(), "data": dict(fingerprints)}
        self.write_text("run.json", json.dumps(record, indent=2) + "\n")

    def write_text(self, name: str, text: str) -> None:
        write_atomically(self.path / name, text.encode())

    # Store: where the trainer keeps checkpoints

    def save_last(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        ckpt.write(self.path / ckpt.LAST, {**self.meta, "training": state}, {**self.fixed, **tensors})

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
        for name in ("loss", "rate", "gradient_norm", "speed"):
            self.writer.add_scalar(f"train/{name}", getattr(update, name), update.update)

    def on_validation(self, update: int, epoch: float, metrics: dict[str, float], best: bool) -> None:
        self.record({"kind": "validation", "update": update, "epoch": epoch, "best": best, **metrics})
        for name, value in metrics.items():
            self.writer.add_scalar(f"validation/{name}", value, update)

    @property
    def writer(self) -> Any:
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.path), purge_step=self._resume_at)
        return self._writer

    def record(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to metrics.jsonl."""
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def records(self) -> list[dict[str, Any]]:
        file = self.path / "metrics.jsonl"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        found = []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:  # cut off by a crash
                continue
        return found

    def _forget_after(self, update: int) -> None:
        """Drops what was recorded after the checkpoint that is resumed: it will be done again."""
        kept = [entry for entry in self.records() if entry.get("update", 0) <= update]
        self.write_text("metrics.jsonl", "".join(json.dumps(entry) + "\n" for entry in kept))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
