"""Starts training runs, resumes them from a checkpoint, and continues them after a restart by
torchrun."""

import contextlib
import logging
import random
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from nmt import components
from nmt.configuration.training_settings import TrainingSettings
from nmt.foundation.configurations import flat
from nmt.foundation.devices import device_of, find_device
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.ranks import Lost, Ranks
from nmt.foundation.terminal import set_up_logging
from nmt.foundation.torchrun import note_folder, noted_folder, together
from nmt.model.native.kernel_library import library
from nmt.pipeline.assembly.run_parts import parts_of
from nmt.pipeline.fingerprint import named_files
from nmt.pipeline.resumed_training import (
    final_score,
    for_validation,
    limits_reached,
    log_finished,
    saved_progress,
    threads_are_set,
    use_threads_of,
)
from nmt.pipeline.run_preparation import (
    check_space,
    compare_with,
    data_hashes,
    log_parts,
    run_directory,
    run_facts,
    warn_of_few_updates,
)
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import LOCK, read_json_object, remove_unfinished
from nmt.storage.lock import Lock
from nmt.training.busy_cores import FewerThreads
from nmt.training.callback import Callback
from nmt.training.memory import Trimming, keep_few_products
from nmt.training.run_directory import (
    claim,
    claim_fresh,
    clear,
    snapshot_file,
    started_in,
    versions,
)
from nmt.training.state import TrainingProgress
from nmt.training.tracker import Tracking
from nmt.training.training_run import Parts, train_and_test

log = logging.getLogger(__name__)
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
        del facts["platform"]  # machines may have different kernels
        ranks.agree("configuration", facts, "start all ranks with the same command and versions")
        path = settings.resume
        if path is None and ranks.attempt:
            path = ranks.on_first(_saved_folder)
        if path is None:
            return begin(settings, ranks, callbacks)
        return resume(settings, path, ranks, callbacks)


def _saved_folder() -> str | None:
    """Returns the run folder of this command after a restart by torchrun; None if the folder
    contains no checkpoint, or if the command had not claimed a folder before the restart."""
    folder = noted_folder()
    return folder if folder and (Path(folder) / ckpt.LAST).exists() else None


def begin(settings: TrainingSettings, ranks: Ranks, callbacks: Sequence[Callback] = ()) -> Trained:
    """Trains a new run in `run_dir`, or in a new subfolder of runs/."""
    device_of(ranks, settings.device)  # raises an error before a folder is created
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
    log_file = folder / "train.log"
    kept = [log_file.name] if log_file.exists() else []
    with lock:
        set_up_logging(log_file)
        try:
            return _run(settings, folder, ranks, callbacks)
        except Exception as error:
            # A run that failed before its first update leaves no folder. After the loss of a rank,
            # torchrun may restart the rank and resume the run in this folder.
            if not isinstance(error, Lost) and not _has_updates(folder):
                _give_up(folder, lock, kept)
            raise


def _give_up(folder: Path, lock: Lock, kept: Collection[str]) -> None:
    """Removes the folder of a run that ended before its first update, and releases its lock.

    kept: names of files that existed before the run
    """
    set_up_logging()
    clear(folder, kept)
    lock.release()
    with contextlib.suppress(OSError):
        folder.rmdir()  # fails if the folder contains any other file


def _has_updates(folder: Path) -> bool:
    """Returns whether the run folder contains a checkpoint that was saved after an update."""
    if (folder / ckpt.BEST).exists():
        return True
    try:
        return saved_progress(ckpt.read(folder / ckpt.LAST)).update > 0
    except UserError:
        return False


def resume(
    settings: TrainingSettings, path: str, ranks: Ranks, callbacks: Sequence[Callback] = ()
) -> Trained:
    """Resumes the run in the folder `path`.

    The result is bit-identical to the result of an uninterrupted run, except that
    `trainer.stop_after` adds a validation before the stop.
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
        progress = saved_progress(saved)  # raises UserError if the checkpoint is damaged
        saved = for_validation(settings, saved)
        results = read_json_object(folder / "results.json")
        has_test = (folder / f"{results.get('part', 'test')}.txt").exists()
        # The final test of a longer training may have been interrupted.
        is_older = results.get("updates", progress.update) != progress.update
        needs_test = not results or is_older or (settings.final_test is True and not has_test)
        if limits_reached(settings, saved) and not needs_test:
            log_finished(settings, saved, folder)
            metric = (
                settings.values.get("choose_by") or components.make(settings.values, "metric").name
            )
            return Trained(folder, final_score(results, metric))
        _check_weights(settings, path, saved, progress)
        log.info(
            "resume: continuing the training in the run folder %s at update %s",
            folder,
            f"{progress.update:,}",
        )
        # With a different number of ranks, the order of sums differs regardless of threads.
        if saved.meta.get("ranks", 1) == ranks.count:
            use_threads_of(saved, threads_are_set(settings))
        return _run(settings, folder, ranks, callbacks, saved)


def _check_weights(
    settings: TrainingSettings, path: str, saved: ckpt.Checkpoint, progress: TrainingProgress
) -> None:
    """Raises UsageError if a file with earlier weights of a resumed run is missing.

    path: run folder
    saved: checkpoint of the run, from `for_validation`
    progress: progress of the run before `for_validation`
    """
    if progress.best is not None and not Path(path, ckpt.BEST).exists():
        raise UsageError(
            f"resume={path}: {ckpt.BEST} not found, which has the best weights (update "
            f"{progress.best_update:,}); copy it into the folder"
        )
    snapshots = [snapshot_file(Path(path), n) for n, _ in saved_progress(saved).snapshots]
    missing = [file.name for file in snapshots if not file.exists()]
    is_averaged = progress.averaged and limits_reached(settings, saved)  # only the test remains
    if missing and settings.trainer["average"] and not is_averaged:
        raise UsageError(
            f"resume={path}: {', '.join(missing)} not found, which trainer.average needs; copy the "
            "files into the folder, or set trainer.average=0"
        )


def _run(
    settings: TrainingSettings,
    folder: Path,
    ranks: Ranks,
    callbacks: Sequence[Callback],
    saved: ckpt.Checkpoint | None = None,
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
    hashes = data_hashes(parts, folder, ranks, saved)
    files = run_directory(parts, folder, config, ranks)
    progress = None if saved is None else saved_progress(saved)
    log_parts(parts, ranks, time.monotonic() - began)
    if saved is None:
        warn_of_few_updates(settings, parts.task, ranks)
    if ranks.first:
        contents = {**hashes, **named_files(settings.values)}
        if saved is None and settings.repeats:
            compare_with(Path(settings.repeats), {**contents, **parts.task.test_fingerprints})
        check_space(folder, parts)
        if progress is not None:  # removes the records of updates that the resumed run repeats
            files.on_rollback(progress.update, progress.validated, progress.averaged)
        files.describe(config, {**contents, **parts.task.test_fingerprints})
    score = train_and_test(
        parts,
        files,
        [
            Tracking(parts.trackers, folder, config, None if progress is None else progress.update),
            Trimming(),
            *([FewerThreads()] if _adapts_threads(settings, ranks) else []),
            *parts.callbacks,
            *callbacks,
        ],
        saved=saved,
        is_over=saved is not None and bool(limits_reached(settings, saved)),
        tests=is_tested(settings),
        facts=run_facts(settings, parts, hashes, ranks),
    )
    return Trained(folder, score)


def is_tested(settings: TrainingSettings) -> bool:
    """Returns whether a run evaluates its best weights on the test set at its end."""
    is_trial = 0 < settings.trainer["max_updates"] < TRIAL_UPDATES
    return not is_trial if settings.final_test == "auto" else settings.final_test


def _adapts_threads(settings: TrainingSettings, ranks: Ranks) -> bool:
    """Returns whether the number of threads is reduced while the cores of the CPU are busy."""
    is_on_cpu = find_device(settings.device).type == "cpu"
    return is_on_cpu and not ranks.several and not threads_are_set(settings)


def _parts(
    settings: TrainingSettings, folder: Path, ranks: Ranks, saved: ckpt.Checkpoint | None
) -> Parts:
    """Builds the components of a run with random number generators seeded by `seed`.

    Raises UserError if the data cannot be used; for a resumed run, the message names the original
    working directory.
    """
    device = device_of(ranks, settings.device)
    if device.type == "cpu":
        library()  # compiles the C++ extension before the training time is measured
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
        raise UserError(
            f"{error}; relative paths refer to the folder {origin}, in which the training was "
            "started; resume the training in this folder"
        ) from error
