"""Starts training runs, resumes them from a checkpoint, and continues them after a restart by
torchrun."""

import contextlib
import logging
import math
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

from nmt import components
from nmt.configuration.training_settings import TrainingSettings
from nmt.data.overlap import held_out_in_training
from nmt.foundation import plugins
from nmt.foundation.configurations import NOT_LEARNT, changed_keys, flat
from nmt.foundation.devices import device_of, find_device
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranks import Lost, Ranks
from nmt.foundation.terminal import set_up_logging
from nmt.foundation.torchrun import note_folder, noted_folder, together
from nmt.pipeline.assembly.run_parts import parts_of
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.storage.files import read_json_object, remove_unfinished
from nmt.storage.lock import Lock
from nmt.training.busy_cores import FewerThreads
from nmt.training.callback import Callback
from nmt.training.memory import Trimming, keep_few_products
from nmt.training.run_directory import (
    LOCK,
    RECORD,
    RunDirectory,
    claim,
    claim_fresh,
    clear,
    started_in,
    versions,
)
from nmt.training.state import TrainingProgress
from nmt.training.task import Task
from nmt.training.task.translation_task import TranslationTask
from nmt.training.tracker import Tracking
from nmt.training.training_run import Parts, train_and_test

log = logging.getLogger(__name__)
FEW_UPDATES = 1000
"""Number of planned updates below which a training run logs a warning."""
TRIAL_UPDATES = 100
"""Number of updates below which final_test=auto skips the evaluation on the test set."""


class Trained(NamedTuple):
    """Result of a training run.

    folder: run folder
    score: test score in the configured metric
    """

    folder: Path
    score: float


def train(settings: TrainingSettings, callbacks: Sequence[Callback] = ()) -> Trained:
    """Trains and tests a model, from the beginning or from the last checkpoint.

    settings: validated settings of the training command
    callbacks: trainer callbacks in addition to the configured callback

    Raises UserError if the data cannot be used, and Stopped after an interruption.
    """
    # Called before the first matrix multiplication, since oneDNN reads its limits only once.
    keep_few_products()
    with together(find_device(settings.device).type == "cuda") as ranks:
        facts = {**flat(settings.values), **versions()}
        ranks.agree("configuration", facts, "start all ranks with the same command and versions")
        path = settings.resume
        if path is None and ranks.attempt:
            path = ranks.of_first(_saved_folder(settings, ranks))
        if path is None:
            return begin(settings, ranks, callbacks)
        return resume(settings, path, ranks, callbacks)


def _saved_folder(settings: TrainingSettings, ranks: Ranks) -> str | None:
    """Returns the run folder after a restart by torchrun; None if the folder contains no checkpoint
    or is unknown.
    """
    folder = settings.run_dir or (noted_folder() if ranks.first else None)
    return folder if folder and (Path(folder) / ckpt.LAST).exists() else None


def begin(settings: TrainingSettings, ranks: Ranks, callbacks: Sequence[Callback] = ()) -> Trained:
    """Trains a new run in `run_dir`, or in a new subfolder of runs/."""
    device_of(ranks, settings.device)
    # Only rank 0 writes; all other ranks receive the name of the folder.
    if not ranks.first:
        folder = Path(ranks.of_first(""))
        return _run(settings, folder, ranks, callbacks)
    if settings.run_dir is None:
        folder, lock = claim_fresh(Path("runs", time.strftime("%Y-%m-%d_%H-%M-%S")))
    else:
        folder = Path(settings.run_dir)
        lock = claim(folder)
    note_folder(str(folder))
    # The exchange sends the name of the run folder to all waiting ranks.
    ranks.of_first(str(folder))
    with lock:
        set_up_logging(folder / "train.log")
        try:
            return _run(settings, folder, ranks, callbacks)
        except Exception as error:
            # A run that failed before its first update leaves no folder. After the loss of a rank,
            # torchrun may restart the rank and resume the run in this folder.
            if not isinstance(error, Lost) and not _has_updates(folder):
                _give_up(folder, lock)
            raise


def _give_up(folder: Path, lock: Lock) -> None:
    """Removes the folder of a run that ended before its first update, and releases its lock."""
    set_up_logging()
    clear(folder)
    lock.release()
    with contextlib.suppress(OSError):
        folder.rmdir()  # fails if the folder contains any other file


def _has_updates(folder: Path) -> bool:
    """Returns whether the run folder contains a checkpoint that was saved after an update."""
    try:
        return _progress(ckpt.read(folder / ckpt.LAST)).update > 0
    except UserError:
        return (folder / ckpt.BEST).exists()


def resume(
    settings: TrainingSettings, path: str, ranks: Ranks, callbacks: Sequence[Callback] = ()
) -> Trained:
    """Resumes the run in the folder `path`.

    The result is bit-identical to the result of an uninterrupted run.
    """
    folder = Path(path)
    with Lock(folder / LOCK, f"resume={path}") if ranks.first else contextlib.nullcontext():
        saved = ckpt.read(folder / ckpt.LAST)
        ranks.agree(
            "checkpoint", saved.meta, f"all machines must have access to the same folder {folder}"
        )
        if ranks.first:
            note_folder(path)  # torchrun may restart the processes
            remove_unfinished(folder)
            set_up_logging(folder / "train.log")
        saved = _for_validation(settings, saved)
        progress = _progress(saved)
        results = read_json_object(folder / "results.json")
        is_tested = (folder / f"{results.get('part', 'test')}.txt").exists()
        needs_test = not results or (settings.final_test is True and not is_tested)
        if _limits_reached(settings, progress) and not needs_test:
            _log_finished(settings, saved, folder)
            metric = (
                settings.values.get("choose_by") or components.make(settings.values, "metric").name
            )
            return Trained(folder, final_score(results, metric))
        log.info(
            "resume: continuing the training in the run folder %s at update %s",
            folder,
            f"{progress.update:,}",
        )
        # With a different number of ranks, the order of sums differs regardless of threads.
        if saved.meta.get("ranks", 1) == ranks.count:
            _use_threads_of(saved, _threads_are_set(settings))
        return _run(settings, folder, ranks, callbacks, saved)


def _limits_reached(settings: TrainingSettings, progress: TrainingProgress) -> list[str]:
    """Returns the keys of the limits that ended a training run; empty if it can continue."""
    trainer = settings.trainer
    is_reached = {
        "trainer.max_epochs": progress.epoch >= trainer["max_epochs"],
        "trainer.max_updates": 0 < trainer["max_updates"] <= progress.update,
    }
    return [key for key, reached in is_reached.items() if reached]


def final_score(results: Mapping[str, Any], metric: str) -> float:
    """Returns a finished run's score, on the test set if the run was tested.

    results: content of results.json
    metric: name of the metric
    """
    # The metric `loss` exists only for validation.
    score = {"score": results["validation"].get(metric, math.nan)}
    return float(results["scores"].get(metric, score)["score"])


def _log_finished(settings: TrainingSettings, saved: Checkpoint, folder: Path) -> None:
    """Logs that a run is already finished, and lists the changed settings, which have no effect."""
    keys = changed_keys(flat(saved.meta["config"]), flat(settings.values))
    changed = [key for key in keys if key.partition(".")[0] not in NOT_LEARNT]
    unused = f"The changed settings {', '.join(changed)} have no effect. " if changed else ""
    progress = _progress(saved)
    log.info(
        "%s: the training is finished (%s epochs, %s updates). %sTo continue the training, "
        "raise %s",
        folder,
        progress.epoch,
        f"{progress.update:,}",
        unused,
        " and ".join(_limits_reached(settings, progress)),
    )


def _for_validation(settings: TrainingSettings, saved: Checkpoint) -> Checkpoint:
    """Returns the checkpoint for resuming, without its best score if the validation settings have
    changed.

    Scores of different metrics, or on different numbers of sentences, are not comparable.
    """
    _progress(saved)
    before = saved.meta["config"]
    after = settings.values
    keys = ("metric", "choose_by", "max_validation")  # settings on which validation scores depend
    changed = [key for key in keys if before.get(key) != after.get(key)]
    if not changed:
        return saved
    log.info(
        "resume: %s has changed, so earlier validation scores are ignored, and the checkpoint of "
        "the next validation becomes the best checkpoint",
        ", ".join(changed),
    )
    training = saved.meta["training"]
    progress = {**training["progress"], "best": None, "worse": 0, "snapshots": []}
    return replace(saved, meta={**saved.meta, "training": {**training, "progress": progress}})


def _progress(saved: Checkpoint) -> TrainingProgress:
    """Returns the training progress in a checkpoint.

    Raises UserError if the checkpoint is damaged.
    """
    try:
        return TrainingProgress.of(saved.meta["training"]["progress"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{saved.path}: the training state in the checkpoint is damaged ({error!r}); start "
            "a new training"
        ) from error


def _threads_are_set(settings: TrainingSettings) -> bool:
    """Returns whether the number of threads is set, by the setting `threads` or by
    OMP_NUM_THREADS.
    """
    return settings.threads is not None or "OMP_NUM_THREADS" in os.environ


def _adapts_threads(settings: TrainingSettings, ranks: Ranks) -> bool:
    """Returns whether the number of threads is reduced while the cores of the CPU are busy."""
    is_on_cpu = find_device(settings.device).type == "cpu"
    return is_on_cpu and not ranks.several and not _threads_are_set(settings)


def _use_threads_of(saved: Checkpoint, is_set: bool) -> None:
    """Uses as many threads as the interrupted run, because the number affects rounding errors.

    saved: checkpoint of the run
    is_set: whether the user has set the number of threads, which is then kept
    """
    before = saved.meta.get("threads")
    now = torch.get_num_threads()
    if isinstance(before, int) and 0 < before <= 4 * (os.cpu_count() or 1) and before != now:
        log.warning(
            "threads: the training began with %s threads and continues with %s, as set; "
            "rounding errors differ from those of an uninterrupted training"
            if is_set
            else "threads: using %s threads, as in the interrupted training, instead of %s, "
            "because the number of threads affects rounding errors",
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
) -> Trained:
    """Assembles a training run, writes its description to the run folder, trains and tests.

    settings: validated settings of the training command
    folder: run folder
    ranks: all processes of the training, started by torchrun
    callbacks: trainer callbacks in addition to the configured callback
    saved: checkpoint to resume from; None for a new run

    Raises UserError if the data has changed or disk space is insufficient.
    """
    config = {**settings.values, "run_dir": str(folder), "resume": None, "sweep": None}
    began = time.monotonic()
    parts = _parts(settings, folder, ranks, saved)
    hashes = _data_hashes(parts, folder, ranks, saved)
    files = _files(parts, folder, config, ranks, getattr(settings, "keep_validations", False))
    update = None if saved is None else _progress(saved).update
    _log_parts(parts, ranks, time.monotonic() - began)
    if saved is None:
        _warn_of_few_updates(settings, parts.task, ranks)
        if settings.repeats and ranks.first:
            _compare_with(Path(settings.repeats), hashes)
    if ranks.first:
        _check_space(folder, parts)
        if update is not None:
            files.drop_records_after(update)  # the updates after the last checkpoint are repeated
        files.describe(config, {**hashes, **parts.task.test_fingerprints})
    is_trial = 0 < settings.trainer["max_updates"] < TRIAL_UPDATES
    score = train_and_test(
        parts,
        files,
        [
            Tracking(parts.trackers, folder, config, update),
            Trimming(),
            *([FewerThreads()] if _adapts_threads(settings, ranks) else []),
            *parts.callbacks,
            *callbacks,
        ],
        saved=saved,
        tests=not is_trial if settings.final_test == "auto" else settings.final_test,
        facts=_facts(settings, parts, hashes, ranks),
    )
    return Trained(folder, score)


def _compare_with(folder: Path, hashes: Mapping[str, str]) -> None:
    """Logs a warning if this run cannot repeat a saved run exactly (--from).

    This is the case if the data has changed since the saved run, or if the saved run was resumed
    with other settings.

    folder: folder of the saved run
    hashes: fingerprints of this run's data by name
    """
    record = read_json_object(folder / RECORD)
    before = record.get("data", {})
    changed = [name for name in hashes if name in before and before[name] != hashes[name]]
    if changed:
        log.warning(
            "--from %s: the data has changed since that run (%s), so results can differ",
            folder,
            ", ".join(changed),
        )
    first, *later = record.get("commands") or [[]]
    added = {word for words in later for word in words[1:]} - {*first}
    settings = sorted(word for word in added if not word.startswith("resume="))
    if settings:
        log.warning(
            "--from %s: that run was resumed with other settings (%s); its config.yaml contains "
            "only the last settings, so the new run uses these settings from the start",
            folder,
            " ".join(settings),
        )


def _facts(
    settings: TrainingSettings, parts: Parts, hashes: Mapping[str, str], ranks: Ranks
) -> dict[str, Any]:
    """Returns entries for results.json: seed, fingerprints of the data, and software versions.

    For translation, a further entry is the number of pairs of each validation and test set that are
    also training pairs; a number above 0 is also logged.
    """
    facts: dict[str, Any] = {"seed": settings.seed, "data": hashes, "versions": versions()}
    if ranks.first and isinstance(parts.task, TranslationTask):
        are_dropped = bool(settings.values["filters"].get("drop_held_out"))
        splits = parts.task.data.splits
        facts["pairs_in_training"] = held_out_in_training(splits, are_dropped=are_dropped)
    return facts


def _data_hashes(
    parts: Parts, folder: Path, ranks: Ranks, saved: Checkpoint | None
) -> dict[str, str]:
    """Returns fingerprints of the data by name.

    Raises UserError if the fingerprints differ between ranks, or from the checkpoint's
    fingerprints.
    """
    hashes = dict(parts.task.fingerprints)
    # Compared across ranks first, since a rank that fails alone keeps all other ranks waiting.
    ranks.agree("data", hashes, "all machines must have access to the same files")
    if saved is not None and saved.meta.get("data") != hashes:
        raise UserError(
            f"resume={folder}: the data has changed since the training began; restore the "
            "data, or start a new training"
        )
    return hashes


def _parts(
    settings: TrainingSettings, folder: Path, ranks: Ranks, saved: Checkpoint | None
) -> Parts:
    """Builds the components of a run with random number generators seeded by `seed`.

    Raises UserError if the data cannot be used; for a resumed run, the message names the original
    working directory.
    """
    device = device_of(ranks, settings.device)
    # Python, NumPy and PyTorch have separate random number generators.
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    try:
        return parts_of(settings, device, ranks, saved)
    except UserError as error:
        origin = started_in(folder)
        if saved is None or origin in (None, str(Path.cwd())):
            raise
        remedy = (
            f"relative paths refer to the folder {origin}, in which the training was started; "
            "resume the training in this folder"
        )
        raise UserError(f"{error}; {remedy}") from error


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


def _warn_of_few_updates(settings: TrainingSettings, task: Task, ranks: Ranks) -> None:
    """Logs a warning if few updates are planned.

    There is no warning for fine-tuning, generated data, or an explicit number of updates.
    """
    trainer = settings.trainer
    is_generated = getattr(settings.view.parts["data"], "generated", False)
    is_excepted = is_generated or trainer["max_updates"] or getattr(settings, "init", None)
    if is_excepted or not isinstance(task, TranslationTask):
        return
    batches = trainer["max_epochs"] * len(task.batches(0))
    updates = batches // (trainer["accumulate"] * ranks.count)
    if updates < FEW_UPDATES:
        log.warning(
            "trainer.max_epochs: the training has only %s updates, but translation needs "
            "thousands; raise trainer.max_epochs, or add sentence pairs",
            f"{updates:,}",
        )


def _log_parts(parts: Parts, ranks: Ranks, seconds: float) -> None:
    """Logs the data, the network, the device, and missing optional packages of a training run."""
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
    """Raises UserError if the disk has too little free space for the checkpoints of the run.

    A checkpoint contains the weights, their moving average and two optimizer moments. The last
    checkpoint exists twice while it is replaced. The best weights and the weights to average have
    their own files.
    """
    trainer = parts.trainer
    weights = sum(parameter.nbytes for parameter in parts.task.network.parameters())
    needed = weights * (4 * (trainer.keep + 1) + 2 + trainer.average)  # disk space in bytes
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(
            f"{folder}: {free / 1e6:,.0f} MB free on the disk, but the checkpoints of the run need "
            f"up to {needed / 1e6:,.0f} MB. Choose another run_dir, or lower trainer.keep and "
            "trainer.average"
        )
