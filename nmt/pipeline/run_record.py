"""Record of a run in its checkpoints and in results.json: fingerprints of the data, versions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from nmt.configuration.training_settings import TrainingSettings
from nmt.data.overlap import held_out_in_training
from nmt.foundation import plugins
from nmt.foundation.errors import UserError
from nmt.foundation.ranks import Ranks
from nmt.storage.checkpoint import Checkpoint
from nmt.training.run_directory import RunDirectory, versions
from nmt.training.task.translation_task import TranslationTask
from nmt.training.training_run import Parts


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
            f"resume={folder}: the data has changed since the training began; restore the "
            "data, or start a new training"
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
