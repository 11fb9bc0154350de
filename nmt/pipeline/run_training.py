"""Start, resume and restart of a training run."""

import contextlib
import logging
import os
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml

from nmt.configuration.saved_runs import read_initial
from nmt.configuration.training_settings import TrainingSettings
from nmt.foundation import plugins
from nmt.foundation.configurations import NOT_LEARNT, flat
from nmt.foundation.devices import device_of, find_device
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranks import Lost, Ranks, note_folder, noted_folder, together
from nmt.foundation.terminal import set_up_logging
from nmt.pipeline.assembly import Beginning, Fresh, FromCheckpoint, Parts, Resumed, parts_of
from nmt.pipeline.recipe_advice import advise_recipe
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.storage.files import remove_unfinished
from nmt.storage.lock import Lock
from nmt.training.callback import Callback
from nmt.training.memory import Trimming, keep_few_products
from nmt.training.run_directory import (
    LOCK,
    RunDirectory,
    claim,
    claim_fresh,
    clear,
    started_in,
    versions,
)
from nmt.training.state import TrainingProgress
from nmt.training.tracking import Tracking
from nmt.training.training_run import TrainingRun

log = logging.getLogger(__name__)
TRIAL_UPDATES = 100
"""Smallest number of updates of a run that is tested with final_test=auto."""


class Trained(NamedTuple):
    """Result of a training.

    folder: run directory
    score: test score in the chosen metric
    """

    folder: Path
    score: float


def train(settings: TrainingSettings, callbacks: Sequence[Callback] = ()) -> Trained:
    """Trains and tests, from the beginning or from the last checkpoint.

    settings: checked settings
    callbacks: further callbacks of the trainer

    Raises UserError if the data cannot be used, Stopped after an interruption.
    """
    # Before the first product: oneDNN reads its limits once.
    keep_few_products()
    with together(find_device(settings.device).type == "cuda") as ranks:
        facts = {**flat(settings.values), **versions()}
        ranks.agree("configuration", facts, "start all with the same command and versions")
        path = settings.resume
        if path is None and ranks.attempt:
            path = ranks.of_first(_saved_folder(settings, ranks))
        if path is None:
            return begin(settings, ranks, callbacks)
        return resume(settings, path, ranks, callbacks)


def _saved_folder(settings: TrainingSettings, ranks: Ranks) -> str | None:
    """Folder of a run that torchrun has restarted; None without a checkpoint."""
    folder = settings.run_dir or (noted_folder() if ranks.first else None)
    return folder if folder and (Path(folder) / ckpt.LAST).exists() else None


def begin(settings: TrainingSettings, ranks: Ranks, callbacks: Sequence[Callback] = ()) -> Trained:
    """Trains a new run in `run_dir`, or in a new folder of runs/."""
    device_of(ranks, settings.device)
    # Only rank 0 writes; the others receive the name of the folder.
    if not ranks.first:
        folder = Path(ranks.of_first(""))
        return Trained(folder, _run(settings, folder, ranks, callbacks).run())
    if settings.run_dir is None:
        folder, lock = claim_fresh(Path("runs", time.strftime("%Y-%m-%d_%H-%M-%S")))
    else:
        folder = Path(settings.run_dir)
        lock = claim(folder)
    note_folder(str(folder))
    # The other ranks wait for the name in the first lines of this function.
    ranks.of_first(str(folder))
    with lock:
        set_up_logging(folder / "train.log")
        try:
            return Trained(folder, _run(settings, folder, ranks, callbacks).run())
        # torchrun may restart the lost rank, and the run is resumed in this folder.
        except Lost:
            raise
        except Exception:
            # A run that could not begin leaves nothing behind.
            if not _has_updates(folder):
                _give_up(folder, lock)
            raise


def _give_up(folder: Path, lock: Lock) -> None:
    """Removes the folder of a run without an update."""
    set_up_logging()
    clear(folder)
    lock.release()
    with contextlib.suppress(OSError):
        folder.rmdir()  # fails if something else is in it


def _has_updates(folder: Path) -> bool:
    """Whether a checkpoint contains at least one update."""
    try:
        return _progress(ckpt.read(folder / ckpt.LAST)).update > 0
    except UserError:
        return (folder / ckpt.BEST).exists()


def resume(
    settings: TrainingSettings, path: str, ranks: Ranks, callbacks: Sequence[Callback] = ()
) -> Trained:
    """Continues the run in the folder `path`.

    The result equals that of an uninterrupted run bit for bit.
    """
    folder = Path(path)
    with Lock(folder / LOCK, f"resume={path}") if ranks.first else contextlib.nullcontext():
        saved = ckpt.read(folder / ckpt.LAST)
        ranks.agree("checkpoint", saved.meta, f"all machines must see the same folder {folder}")
        if ranks.first:
            note_folder(path)
            remove_unfinished(folder)
            set_up_logging(folder / "train.log")
        saved = _for_validation(settings, saved)
        progress = _progress(saved)
        if _is_finished(settings, progress) and (folder / "results.json").is_file():
            _log_finished(settings, saved, folder)
            return Trained(folder, float("nan") if progress.best is None else progress.best)
        log.info("resuming the run in %s at update %s", folder, f"{progress.update:,}")
        # With other ranks, sums are in another order anyway.
        if saved.meta.get("ranks", 1) == ranks.count:
            is_set = settings.threads is not None or "OMP_NUM_THREADS" in os.environ
            _use_threads_of(saved, is_set)
        return Trained(folder, _run(settings, folder, ranks, callbacks, saved).run())


def _is_finished(settings: TrainingSettings, progress: TrainingProgress) -> bool:
    is_at_last_update = 0 < settings.trainer["max_updates"] <= progress.update
    return progress.epoch >= settings.trainer["max_epochs"] or is_at_last_update


def _log_finished(settings: TrainingSettings, saved: Checkpoint, folder: Path) -> None:
    """Logs that a run is finished, and the changed settings, which have no effect."""
    before = flat(saved.meta["config"])
    after = flat(settings.values)
    changed = sorted(
        key
        for key in {*before, *after}
        if key.partition(".")[0] not in NOT_LEARNT and before.get(key) != after.get(key)
    )
    unused = f"The changed settings have no effect: {', '.join(changed)}. " if changed else ""
    log.info(
        "%s: the run is finished (%s epochs). %sTo train it further, raise trainer.max_epochs",
        folder,
        _progress(saved).epoch,
        unused,
    )


def _for_validation(settings: TrainingSettings, saved: Checkpoint) -> Checkpoint:
    """The checkpoint to resume from, without its best score if validation has changed.

    Scores of another metric, or of another amount of text, cannot be compared.
    """
    _progress(saved)
    before = saved.meta["config"]
    after = settings.values
    keys = ("metric", "choose_by", "max_validation")
    changed = [key for key in keys if before.get(key) != after.get(key)]
    if not changed:
        return saved
    log.info(
        "%s changed: earlier validation scores are ignored, and the next one counts as the best",
        ", ".join(changed),
    )
    training = saved.meta["training"]
    progress = {**training["progress"], "best": None, "worse": 0, "snapshots": []}
    return replace(saved, meta={**saved.meta, "training": {**training, "progress": progress}})


def _progress(saved: Checkpoint) -> TrainingProgress:
    """The progress of a run. Raises UserError if its checkpoint is damaged."""
    try:
        return TrainingProgress.of(saved.meta["training"]["progress"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{saved.path}: its state cannot be used ({error!r}); it is damaged"
        ) from error


def _use_threads_of(saved: Checkpoint, is_set: bool) -> None:
    """Sets the number of threads of the interrupted run: the last digits of products depend on it.

    is_set: whether the user has set a number, which stays
    """
    before = saved.meta.get("threads")
    now = torch.get_num_threads()
    if isinstance(before, int) and 0 < before <= 4 * (os.cpu_count() or 1) and before != now:
        log.warning(
            "this run began with %s threads: continuing with %s, as set; the results differ in the "
            "last digits from those of an uninterrupted run"
            if is_set
            else "this run began with %s threads: using as many instead of %s, because the number "
            "of threads affects the last digits",
            before,
            now,
        )
        torch.set_num_threads(now if is_set else before)


def _run(
    settings: TrainingSettings,
    folder: Path,
    ranks: Ranks,
    callbacks: Sequence[Callback],
    saved: Checkpoint | None = None,
) -> TrainingRun:
    """Assembles a run and writes its description.

    settings: checked settings
    folder: run directory
    ranks: all processes of the training
    callbacks: further callbacks of the trainer
    saved: checkpoint to continue from; None: a new run

    Raises UserError if the data has changed, or the disk is too full.
    """
    config = {**settings.values, "run_dir": str(folder), "resume": None, "sweep": None}
    began = time.monotonic()
    parts = _parts(settings, folder, ranks, saved)
    hashes = _data_hashes(parts, folder, ranks, saved)
    files = _files(parts, folder, config, ranks, getattr(settings, "keep_validations", False))
    update = None if saved is None else _progress(saved).update
    _log_parts(parts, ranks, time.monotonic() - began)
    if saved is None:
        advise_recipe(settings, parts, ranks)
    if ranks.first:
        _check_space(folder, parts)
        if update is not None:
            files.drop_records_after(update)
        files.describe(config, hashes)
    tracking = Tracking(
        parts.trackers,
        folder,
        flat(config),
        yaml.safe_dump(config, sort_keys=False, allow_unicode=True),
        update,
    )
    return TrainingRun(
        task=parts.task,
        trainer=parts.trainer,
        optimizer=parts.optimizer,
        schedule=parts.schedule,
        files=files,
        callbacks=[tracking, Trimming(), *parts.callbacks, *callbacks],
        checkpoint=saved,
        tests=_tests(settings),
        facts={"seed": settings.seed, "data": hashes, "versions": versions()},
    )


def _data_hashes(
    parts: Parts, folder: Path, ranks: Ranks, saved: Checkpoint | None
) -> dict[str, str]:
    """Fingerprints of the data, by name.

    Raises UserError if they differ between the ranks, or from those of the checkpoint to continue.
    """
    hashes = dict(parts.task.fingerprints)
    # Before the comparison with the checkpoint: a rank that ends alone keeps the others waiting.
    ranks.agree("data", hashes, "all machines must see the same files")
    if saved is not None and saved.meta.get("data") != hashes:
        raise UserError(
            f"resume={folder}: the data has changed since this run began; restore it, or start a "
            "new run"
        )
    return hashes


def _parts(
    settings: TrainingSettings, folder: Path, ranks: Ranks, saved: Checkpoint | None
) -> Parts:
    """The parts of a run.

    Raises UserError if the data cannot be used; a resumed run names the folder of its first start.
    """
    try:
        return _seeded_parts(settings, ranks, saved)
    except UserError as error:
        origin = started_in(folder)
        if saved is None or origin in (None, str(Path.cwd())):
            raise
        remedy = f"relative paths belong to {origin}, where the run was started: resume it there"
        raise UserError(f"{error}; {remedy}") from error


def _tests(settings: TrainingSettings) -> bool:
    """Whether the best weights are tested; by default, unless the run is a short trial."""
    if settings.final_test != "auto":
        return settings.final_test
    return not 0 < settings.trainer["max_updates"] < TRIAL_UPDATES


def _seeded_parts(settings: TrainingSettings, ranks: Ranks, saved: Checkpoint | None) -> Parts:
    """The parts of a run, built from random numbers that depend on the seed alone.

    Raises UserError if there is no model at init=.
    """
    device = device_of(ranks, settings.device)
    # Word order, batches and weights draw from three generators.
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    path = getattr(settings, "init", None)
    beginning: Beginning = Fresh()
    if saved is not None:
        beginning = Resumed(saved)
    elif path:
        beginning = FromCheckpoint(read_initial(path))
    return parts_of(settings, beginning, device, ranks)


def _files(
    parts: Parts, folder: Path, config: Mapping[str, Any], ranks: Ranks, keep_answers: bool
) -> RunDirectory:
    task = parts.task
    meta = {
        "command": task.command,
        "config": config,
        **task.meta,
        "versions": versions(),
        "data": dict(task.fingerprints),
        "threads": torch.get_num_threads(),
        "ranks": ranks.count,
    }
    if needed := plugins.needed({**config, "callback": None}):
        meta["plugins"] = needed
    return RunDirectory(
        path=folder,
        meta=meta,
        tensors=task.tensors,
        keep=parts.trainer.keep,
        keep_answers=keep_answers,
    )


def _log_parts(parts: Parts, ranks: Ranks, seconds: float) -> None:
    """Logs data, network, device, and packages that are not installed."""
    data, network = parts.task.introduction()
    log.info("data: %s; prepared in %.1f s", data, seconds)
    weights = list(parts.task.network.parameters())
    device = weights[0].device
    where = str(device) if not ranks.several else f"{ranks.count} processes, each on {device.type}"
    count = sum(parameter.numel() for parameter in weights)
    log.info(
        "model: %s, %s parameters; %s on %s", network, f"{count:,}", parts.trainer.precision, where
    )
    absent = [package for package in ("matplotlib", "tensorboard") if not installed(package)]
    if absent:
        log.info(advice(*absent))


def _check_space(folder: Path, parts: Parts) -> None:
    """Raises UserError if the disk has no room for the checkpoints of the run.

    A checkpoint holds weights, their moving average and two moments of the optimizer. The last one
    is there twice while it is replaced. The best weights and those to average have their own files.
    """
    trainer = parts.trainer
    weights = sum(parameter.nbytes for parameter in parts.task.network.parameters())
    needed = weights * (4 * (trainer.keep + 1) + 2 + trainer.average)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{folder}: {free / 1e6:,.0f} MB are free on its disk, and the checkpoints of this run "
            f"take up to {needed / 1e6:,.0f} MB. Choose another run_dir, or lower trainer.keep and "
            "trainer.average"
        )
