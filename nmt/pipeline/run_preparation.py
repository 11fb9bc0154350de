"""Preparation of a training run: record of its data and versions, and checks before the first
update."""

import logging
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nmt.configuration.training_settings import TrainingSettings
from nmt.data.overlap import held_out_in_training
from nmt.foundation import plugins
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranks import Ranks
from nmt.storage.checkpoint import Checkpoint
from nmt.storage.files import read_json_object
from nmt.training.run_directory import CHECKPOINTS, RECORD, RunDirectory, versions
from nmt.training.task import Task
from nmt.training.task.translation_task import TranslationTask
from nmt.training.training_run import Parts

log = logging.getLogger(__name__)
FEW_UPDATES = 1000
"""Number of planned updates below which a training run logs a warning."""


def run_facts(
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


def data_hashes(
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
            f"resume={folder}: the data has changed since training began; restore the "
            "data, or start a new training run"
        )
    return hashes


def run_directory(
    parts: Parts, folder: Path, config: Mapping[str, Any], ranks: Ranks
) -> RunDirectory:
    """Returns the run folder, whose checkpoints describe the run.

    parts: components of the training
    folder: path of the run folder
    config: configuration of the run
    ranks: all processes of the training
    """
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
        keep_answers=config.get("keep_validations", False),
    )


def warn_of_few_updates(settings: TrainingSettings, task: Task, ranks: Ranks) -> None:
    """Logs a warning if few updates are planned.

    There is no warning for fine-tuning, generated data, or an explicit number of updates.
    """
    trainer = settings.trainer
    is_generated = getattr(settings.view.parts["data"], "generated", False)
    is_excepted = is_generated or trainer["max_updates"] or getattr(settings, "init", None)
    if is_excepted or not isinstance(task, TranslationTask):
        return
    batches_per_update = trainer["accumulate"] * ranks.count
    updates_per_epoch = math.ceil(len(task.batches(0)) / batches_per_update)
    # A mixture may end within an epoch.
    updates = math.floor(min(trainer["max_epochs"], task.epochs) * updates_per_epoch)
    limit, remedy = "trainer.max_epochs", "raise trainer.max_epochs"
    if task.epochs < trainer["max_epochs"]:
        limit, remedy = "data.config", "lengthen the stages of the mixture"
    if updates < FEW_UPDATES:
        log.warning(
            "%s: the training has only %s updates, but a translation model needs thousands; add "
            "sentence pairs, or %s",
            limit,
            f"{updates:,}",
            remedy,
        )


def log_parts(parts: Parts, ranks: Ranks, seconds: float) -> None:
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


def check_space(folder: Path, parts: Parts) -> None:
    """Raises UserError if the disk has too little free space for the checkpoints of the run.

    A checkpoint contains the weights, their moving average and two optimizer moments. The last
    checkpoint exists twice while it is replaced; with `trainer.keep` above 1, it has copies, and
    the oldest copy is removed after a new one was written. The best weights and the weights to
    average have their own files, of which the worst is removed after a new one was written.
    """
    trainer = parts.trainer
    weights = sum(parameter.nbytes for parameter in parts.task.network.parameters())
    copies = trainer.keep if trainer.keep > 1 else 0
    snapshots = trainer.average + 1 if trainer.average else 0
    needed = weights * (4 * (copies + 2) + 2 + snapshots)  # disk space in bytes
    # A resumed run replaces its earlier checkpoints.
    replaced = sum(file.stat().st_size for pattern in CHECKPOINTS for file in folder.glob(pattern))
    free = shutil.disk_usage(folder).free + replaced
    if free < needed:
        raise UserError(
            f"{folder}: {free / 1e6:,.1f} MB free on the disk, but the checkpoints of the run need "
            f"up to {needed / 1e6:,.1f} MB. Free some space, or lower trainer.keep and "
            "trainer.average; a new run can also have another run_dir"
        )


def compare_with(folder: Path, hashes: Mapping[str, str]) -> None:
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
    without_effect = ("resume=", "trainer.stop_after=")
    settings = sorted(word for word in added if not word.startswith(without_effect))
    if settings:
        log.warning(
            "--from %s: that run was resumed with other settings (%s); its config.yaml contains "
            "only the last settings, so the new run uses these settings from the start",
            folder,
            " ".join(settings),
        )
