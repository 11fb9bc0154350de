"""Starts or resumes a training run: a task, a trainer and a run directory become a run."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from nmt.configuration import build
from nmt.configuration.training_settings import TrainingSettings
from nmt.foundation.configurations import flat
from nmt.foundation.devices import device_of, find_device
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranks import Lost, Ranks, note_folder, noted_folder, together
from nmt.foundation.terminal import set_up_logging
from nmt.model.precision import usable_precision
from nmt.pipeline.assembly import task_of
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.storage.files import remove_unfinished
from nmt.storage.lock import Lock
from nmt.training.memory import keep_few_products
from nmt.training.run_directory import LOCK, RunDirectory, claim, claim_fresh, clear, versions
from nmt.training.state import TrainingProgress
from nmt.training.tracker import Tracker
from nmt.training.tracker.tensorboard import TensorBoard
from nmt.training.tracking import Tracking
from nmt.training.trainer import Trainer
from nmt.training.training_run import TrainingRun

log = logging.getLogger(__name__)


def train(settings: TrainingSettings) -> float:
    """Trains, tests and draws what the settings describe, from the beginning or from where it stopped; returns the test
    score of the metric. Raises UserError if the data cannot be used."""
    keep_few_products()
    with together(find_device(settings.device).type == "cuda") as ranks:
        told = {**flat(settings.values), **versions()}
        ranks.agree("configuration", told, "start all with the same command and versions")
        if settings.resume is not None:
            return go_on(settings, settings.resume, ranks)
        restarted = ranks.of_first(_restarted(settings, ranks)) if ranks.attempt else None
        return begin(settings, ranks) if restarted is None else go_on(settings, restarted, ranks)


def _restarted(settings: TrainingSettings, ranks: Ranks) -> str | None:
    """The run that this one goes on with after torchrun has started it again, if it had come so far as to be saved."""
    folder = settings.run_dir or (noted_folder() if ranks.first else None)
    return folder if folder and (Path(folder) / ckpt.LAST).exists() else None


def begin(settings: TrainingSettings, ranks: Ranks) -> float:
    """A new run in `run_dir`, or in a new folder below runs/."""
    device_of(ranks, settings.device)
    if not ranks.first:
        return _run(settings, Path(ranks.of_first("")), None, ranks).go()
    if settings.run_dir is None:
        folder, lock = claim_fresh(Path("runs", time.strftime("%Y-%m-%d_%H-%M-%S")))
    else:
        folder = Path(settings.run_dir)
        lock = claim(folder)
    note_folder(str(folder))
    ranks.of_first(str(folder))
    with lock:
        set_up_logging(folder / "train.log")
        try:
            return _run(settings, folder, None, ranks).go()
        except Lost:
            raise
        except Exception:
            if not _begun(folder):  # nothing worth keeping: the folder is free again
                set_up_logging()
                clear(folder)
                lock.release()
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise


def _begun(folder: Path) -> bool:
    """Whether a run has made an update that is saved."""
    try:
        return _progress(ckpt.read(folder / ckpt.LAST)).update > 0
    except UserError:
        return (folder / ckpt.BEST).exists()


def go_on(settings: TrainingSettings, path: str, ranks: Ranks) -> float:
    """Continues the run in the folder `path`; the result is bit for bit that of an uninterrupted run."""
    folder = Path(path)
    with Lock(folder / LOCK, f"resume={path}") if ranks.first else contextlib.nullcontext():
        saved = ckpt.read(folder / ckpt.LAST)
        ranks.agree("checkpoint", saved.meta, f"all machines must see the same folder {folder}")
        if ranks.first:
            note_folder(path)
            remove_unfinished(folder)
            set_up_logging(folder / "train.log")
        _judged_anew(settings, saved)
        progress, most = _progress(saved), settings.trainer["max_updates"]
        done = progress.epoch >= settings.trainer["max_epochs"] or 0 < most <= progress.update
        if done and (folder / "results.json").is_file():
            log.info(
                "%s is finished (%s epochs). To train it further, add trainer.max_epochs=N",
                folder,
                progress.epoch,
            )
            return float("nan") if progress.best is None else progress.best
        log.info("resuming %s at update %s", folder, f"{progress.update:,}")
        if saved.meta.get("ranks", 1) == ranks.count:
            _use_threads_of(saved)
        return _run(settings, folder, saved, ranks).go()


def _judged_anew(settings: TrainingSettings, saved: Checkpoint) -> None:
    """If another metric, or more or less text, judges the run from now on, the next validation is the best so far."""
    _progress(saved)
    before, now = saved.meta["config"], settings.values
    changed = [
        key for key in ("metric", "choose_by", "max_validation") if before.get(key) != now.get(key)
    ]
    if not changed:
        return
    log.info("another %s than before: the next validation is the best so far", ", ".join(changed))
    saved.meta["training"]["progress"] |= {"best": None, "worse": 0, "snapshots": []}


def _progress(saved: Checkpoint) -> TrainingProgress:
    """How far a run is. Raises UserError if its checkpoint does not say."""
    try:
        return TrainingProgress.of(saved.meta["training"]["progress"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{saved.path}: its state cannot be used ({error!r}); it is damaged"
        ) from error


def _use_threads_of(saved: Checkpoint) -> None:
    """As many threads as the run began with: sums of products depend on their number in the last digits."""
    threads, here = saved.meta.get("threads"), torch.get_num_threads()
    if isinstance(threads, int) and 0 < threads <= 4 * (os.cpu_count() or 1) and threads != here:
        log.warning(
            "this run began with %s threads: using as many, not %s, for the same results",
            threads,
            here,
        )
        torch.set_num_threads(threads)


def _run(
    settings: TrainingSettings, folder: Path, saved: Checkpoint | None, ranks: Ranks
) -> TrainingRun:
    device = device_of(ranks, settings.device)
    config = {**settings.values, "run_dir": str(folder), "resume": None, "sweep": None}
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    began = time.monotonic()
    task = task_of(settings, device, saved, ranks)
    task.ranks, prints = ranks, dict(task.fingerprints)
    ranks.agree("data", prints, "all machines must see the same files")
    if saved is not None and saved.meta.get("data") != prints:
        raise UserError(
            f"resume={folder}: the data has changed since this run began, so it cannot go on with it"
        )
    options = {
        **settings.trainer,
        "precision": usable_precision(settings.trainer["precision"], device),
    }
    trainer: Trainer = build.make({"trainer": options}, "trainer")
    if trainer.shard and not ranks.several:
        raise UserError(
            "trainer.shard: there is one process only; start several by torchrun, or set it to false"
        )
    meta = {
        "command": task.command, "config": config, **task.meta, "versions": versions(), "data": prints,
        "threads": torch.get_num_threads(), "ranks": ranks.count,
    }  # fmt: skip
    at = None if saved is None else _progress(saved).update
    files = RunDirectory(folder, meta, task.tensors, at if ranks.first else None, keep=trainer.keep)
    if ranks.first:
        files.describe(config, prints)
    data, network = task.introduction()
    log.info("data: %s; ready in %.1f s", data, time.monotonic() - began)
    parameters = sum(p.numel() for p in task.network.parameters())
    where = str(device) if not ranks.several else f"{ranks.count} processes, each on {device.type}"
    log.info(
        "model: %s, %s parameters; %s on %s", network, f"{parameters:,}", trainer.precision, where
    )
    absent = [package for package in ("matplotlib", "tensorboard") if not installed(package)]
    if absent:
        log.info(advice(*absent))
    trained = [p for p in task.network.parameters() if p.requires_grad]
    if ranks.first:
        _check_space(folder, sum(p.nbytes for p in task.network.parameters()), trainer)
    optimizer = build.make(config, "optimizer", parameters=trained)
    schedule = build.make(config, "schedule")
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    trackers = _trackers(config) if ranks.first else []
    tracking = Tracking(
        trackers, task, folder, flat(config), text, at
    )  # the last part: it writes already
    return TrainingRun(
        task,
        trainer,
        ranks.sharded(optimizer) if trainer.shard else optimizer,
        schedule,
        files,
        tracking,
        saved=saved,
        keep_answers=getattr(settings, "keep_validations", False),
        facts={"seed": settings.seed, "data": prints, "versions": files.meta["versions"]},
    )


def _trackers(config: Mapping[str, Any]) -> list[Tracker]:
    """The one that is chosen, which may refuse to begin; then TensorBoard, where it is installed."""
    chosen: list[Tracker] = [build.make(config, "tracker")] if config.get("tracker") else []
    others = [tracker for tracker in chosen if not isinstance(tracker, TensorBoard)]
    return [*others, *([TensorBoard()] if installed("tensorboard") else [])]


def _check_space(folder: Path, weights: int, trainer: Trainer) -> None:
    """Raises UserError if the disk has no room for what the run will write: checkpoints with weights, their average and the
    optimizer's two moments, one of them twice while it is replaced; the best weights, and those that are averaged."""
    needed = weights * (4 * (trainer.keep + 1) + 2 + trainer.average)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{folder}: {free / 1e6:,.0f} MB are free on its disk, and the checkpoints of this run take up to "
            f"{needed / 1e6:,.0f} MB. Choose another run_dir, or lower trainer.keep and trainer.average"
        )
