"""One training run of any task, from configuration to results."""

from __future__ import annotations

import contextlib
import json
import logging
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.configuration import build
from nmt.report import plots
from nmt.storage import checkpoint as ckpt
from nmt.configuration.allocator import keep_freed_memory
from nmt.storage.checkpoint import Checkpoint
from nmt.configuration.devices import find_device, usable_precision
from nmt.foundation.errors import UserError
from nmt.training.progress import ProgressBar, console, set_up_logging
from nmt.training.run_directory import RunDirectory, versions
from nmt.task import Task
from nmt.training.trainer import Progress, Stopped, Trainer

log = logging.getLogger(__name__)


def command(task: type[Task], config: dict[str, Any]) -> float:
    """What a training command line does with its checked configuration: begins, or with `resume` goes on."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    hydra = HydraConfig.get()
    if config["resume"]:
        return resume(task, config["resume"], [text for text in hydra.overrides.task if not text.startswith("resume=")])
    return start(task, config, hydra.runtime.output_dir if hydra.mode == RunMode.MULTIRUN else config["run_dir"])


def start(task: type[Task], config: dict[str, Any], path: str) -> float:
    """A new run in the folder `path`. Raises UserError if the configuration or the data cannot be used."""
    find_device(config["device"])
    folder = Path(path)
    RunDirectory.claim(folder)
    set_up_logging(folder / "train.log")
    try:
        run = _Run(task, {**config, "run_dir": str(folder)}, folder, None)
    except UserError:  # the data cannot be used: leave no trace
        set_up_logging()
        (folder / "train.log").unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    return run.go()


def resume(task: type[Task], path: str, changes: Sequence[str]) -> float:
    """Goes on with a run, by its own configuration and the given key=value changes.

    Raises UserError if there is nothing to resume, or a change would not fit the weights.
    """
    folder = Path(path)
    if not (folder / ckpt.LAST).is_file():
        raise UserError(f"resume={path}: no {ckpt.LAST} in it; there is nothing to go on with")
    saved = ckpt.read(folder / ckpt.LAST)
    ckpt.check_kind(saved, task.command)
    config = _changed(saved.meta["config"], changes)
    task.check(config)
    set_up_logging(folder / "train.log")
    progress, most = saved.meta["training"]["progress"], config["trainer"]["max_updates"]
    done = progress["epoch"] >= config["trainer"]["max_epochs"] or 0 < most <= progress["update"]
    if done and (folder / "results.json").is_file():
        log.info("%s is finished (%s epochs). To train it further, add trainer.max_epochs=N", folder, progress["epoch"])
        return progress["best"]
    log.info("resuming %s at update %s", folder, f"{saved.meta['training']['progress']['update']:,}")
    return _Run(task, config, folder, saved).go()


CHANGEABLE = ("trainer", "objective", "search", "translation", "device", "max_validation")
"""Keys and groups that may change when a run goes on; what else is in a configuration made its weights or its data."""


def _changed(config: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    def fits(key: str) -> bool:
        whole_group = "." not in key and isinstance(config.get(key), dict)
        return key.split(".")[0] in CHANGEABLE and key != "trainer.ema" and not whole_group

    wrong = [change for change in changes if not fits(change.partition("=")[0])]
    if wrong:
        raise UserError(
            f"{', '.join(wrong)}: cannot change when resuming (the weights and the state were made with the old value). "
            f"What can: single keys of {', '.join(CHANGEABLE)}"
        )
    try:
        merged = OmegaConf.merge(OmegaConf.create(config), OmegaConf.from_dotlist(list(changes)))
    except OmegaConfBaseException as error:
        raise UserError(f"{' '.join(changes)}: {error}") from error
    return OmegaConf.to_container(merged, resolve=True)  # type: ignore[return-value]


class _Run:
    """A run's parts, and what is done with them in order."""

    def __init__(self, task: type[Task], config: dict[str, Any], folder: Path, saved: Checkpoint | None) -> None:
        self.config, self.folder, self.saved = config, folder, saved
        keep_freed_memory()
        device = find_device(config["device"])
        random.seed(config["seed"])
        np.random.seed(config["seed"])
        torch.manual_seed(config["seed"])
        began = time.monotonic()
        self.task = task(config, device, saved)
        prints = dict(self.task.fingerprints)
        if saved is not None and saved.meta["data"] != prints:
            raise UserError(f"resume={folder}: the data has changed since this run began, so it cannot go on with it")
        self.trainer: Trainer = build.make(config, "trainer")
        self.trainer.precision = usable_precision(self.trainer.precision, device)
        meta = {"command": task.command, "config": config, **self.task.meta, "versions": versions(), "data": prints}
        at = None if saved is None else saved.meta["training"]["progress"]["update"]
        self.files = RunDirectory(folder, meta, self.task.tensors, at)
        self.files.describe(config, prints)
        data, model = self.task.introduction()
        log.info("data: %s; ready in %.1f s", data, time.monotonic() - began)
        parameters = sum(p.numel() for p in self.task.model.parameters())
        log.info("model: %s, %s parameters; %s on %s", model, f"{parameters:,}", self.trainer.precision, device)

    def go(self) -> float:
        task, bar = self.task, ProgressBar(self.task.unit)
        resumed = None if self.saved is None else (self.saved.meta["training"], self.saved.tensors)
        trained = [p for p in task.model.parameters() if p.requires_grad]
        try:
            with bar:
                progress = self.trainer.fit(
                    model=task.model,
                    objective=task.objective,
                    optimizer=build.make(self.config, "optimizer", parameters=trained),
                    schedule=build.make(self.config, "schedule"),
                    batches=task.batches,
                    validate=task.validate,
                    metric=task.metric,
                    better=task.better,
                    observers=[bar, self.files],
                    store=self.files,
                    resume=resumed,
                )
        except Stopped:
            self._draw_curve()
            log.warning("stopped and saved. Go on with: python -m nmt.%s resume=%s", task.command, self.folder)
            raise SystemExit(130) from None
        finally:
            self.files.close()
        return self._finish(progress)

    def _finish(self, progress: Progress) -> float:
        """Tests the best weights, draws, and says what to type next."""
        best = ckpt.read(self.folder / ckpt.BEST)
        ckpt.load_weights(self.task.model, best.part("model"), best.path)
        self.task.model.eval()
        part, results, lines = self.task.test(self.files)
        record = {
            "part": part,
            **results,
            "validation": best.meta["metrics"],
            "best_update": best.meta["update"],
            "updates": progress.update,
            "training_seconds": round(progress.seconds, 1),
            "seed": self.config["seed"],
            "data": self.files.meta["data"],
            "versions": self.files.meta["versions"],
        }
        self.files.write_text("results.json", json.dumps(record, indent=2, ensure_ascii=False))
        self._draw_curve()
        self.task.draw(self.folder)
        for line in lines:
            log.info("%s %s", part, line)
        log.info(
            "trained %.0f s, best at update %s; everything is in %s",
            progress.seconds,
            progress.best_update,
            self.folder,
        )
        console.print("\nNext:", style="bold", highlight=False)
        for command in [*self.task.next_commands(self.folder), f"tensorboard --logdir {self.folder}"]:
            console.print("  " + command, highlight=False, markup=False, soft_wrap=True)
        scores = results["scores"]
        chosen = self.task.metric
        return scores[chosen]["score"] if chosen in scores else best.meta["metrics"][chosen]

    def _draw_curve(self) -> None:
        records = self.files.records()
        if any(record["kind"] == "validation" for record in records):
            file = self.folder / "learning_curve.png"
            plots.learning_curve(records, self.task.metric, file, self.task.title, self.task.unit)
