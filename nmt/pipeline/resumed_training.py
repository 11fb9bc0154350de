"""State of a run that is resumed: progress in its checkpoint, limits that ended it, and the number
of threads."""

import logging
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nmt.configuration.training_settings import TrainingSettings
from nmt.foundation.configurations import NOT_LEARNT, changed_keys, flat
from nmt.foundation.errors import UserError
from nmt.storage.checkpoint import Checkpoint
from nmt.training.state import TrainingProgress

log = logging.getLogger(__name__)


def limits_reached(settings: TrainingSettings, saved: Checkpoint) -> list[str]:
    """Returns the keys of the limits that ended a training run; empty if it can continue.

    saved: checkpoint of the run, from `for_validation`
    """
    trainer = settings.trainer
    progress = saved_progress(saved)
    # A run that ended by its time budget, or with the last stage of a mixture, ends again unless a
    # setting of the trainer or of the validation has changed.
    is_over = progress.finished and saved.meta["config"].get("trainer") == trainer
    is_mixture = "config" in settings.values["data"]
    is_reached = {
        "trainer.max_epochs": progress.epoch >= trainer["max_epochs"],
        "trainer.max_updates": 0 < trainer["max_updates"] <= progress.update,
        "trainer.patience": progress.finished and 0 < trainer["patience"] <= progress.worse,
        "time_budget": is_over and trainer.get("time_budget") is not None,
        "data.config": is_over and is_mixture,
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


def log_finished(settings: TrainingSettings, saved: Checkpoint, folder: Path) -> None:
    """Logs that a run is already finished, and lists the changed settings, which have no effect."""
    keys = changed_keys(flat(saved.meta["config"]), flat(settings.values))
    changed = [key for key in keys if key.partition(".")[0] not in NOT_LEARNT]
    unused = f"The changed settings {', '.join(changed)} have no effect. " if changed else ""
    progress = saved_progress(saved)
    limits = limits_reached(settings, saved)
    remedy = (
        "The time budget is used up, or the last stage of data.config has ended"
        if "data.config" in limits
        else f"To continue the training, raise {' and '.join(limits)}"
    )
    log.info(
        "%s: the training is finished (%s epochs, %s updates). %s%s",
        folder,
        progress.epoch,
        f"{progress.update:,}",
        unused,
        remedy,
    )


def for_validation(settings: TrainingSettings, saved: Checkpoint) -> Checkpoint:
    """Returns the checkpoint for resuming, without its best score if the validation settings have
    changed.

    Scores of different metrics, or on different numbers of sentences, are not comparable.
    """
    before = flat(saved.meta["config"])
    score = settings.values.get("choose_by") or before.get("metric.name")
    keys = changed_keys(before, flat(settings.values))
    changed = [key for key in keys if _changes_scores(key, before, score)]
    if not changed:
        return saved
    training = saved.meta["training"]
    progress = {**training["progress"], "best": None, "worse": 0, "snapshots": []}
    saved = replace(saved, meta={**saved.meta, "training": {**training, "progress": progress}})
    if not limits_reached(settings, saved):
        log.info(
            "resume: %s has changed, so earlier validation scores are ignored, and the checkpoint "
            "of the next validation becomes the best checkpoint",
            ", ".join(dict.fromkeys(key.partition(".")[0] for key in changed)),
        )
    return saved


def _changes_scores(key: str, before: Mapping[str, Any], score: str | None) -> bool:
    """Returns whether a change of a key makes validation scores incomparable.

    key: dotted key whose value has changed
    before: earlier values by dotted key; a checkpoint of an older version lacks newer keys
    score: name of the metric that selects the best checkpoint
    """
    if key.startswith("translation."):
        # The loss needs no translations. The batch size does not affect translations.
        return key in before and key != "translation.batch_tokens" and score != "loss"
    return key.partition(".")[0] in ("metric", "choose_by", "max_validation")


def saved_progress(saved: Checkpoint) -> TrainingProgress:
    """Returns the training progress in a checkpoint.

    Raises UserError if the checkpoint is damaged.
    """
    try:
        return TrainingProgress.of(saved.meta["training"]["progress"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{saved.path}: the training state in the checkpoint is damaged ({error!r}); start "
            "a new training run"
        ) from error


def threads_are_set(settings: TrainingSettings) -> bool:
    """Returns whether the number of threads is set, by the setting `threads` or by
    OMP_NUM_THREADS.
    """
    return settings.threads is not None or "OMP_NUM_THREADS" in os.environ


def use_threads_of(saved: Checkpoint, is_set: bool) -> None:
    """Uses as many threads as the interrupted run, because the number affects rounding errors. A
    machine with far fewer cores keeps its number of threads.

    saved: checkpoint of the run
    is_set: whether the user has set the number of threads, which is then kept
    """
    before = saved.meta.get("threads")
    now = torch.get_num_threads()
    if not isinstance(before, int) or before <= 0 or before == now:
        return
    cores = os.cpu_count() or 1
    if is_set or before > 4 * cores:
        log.warning(
            "threads: the training began with %s threads and continues with %s, %s; "
            "rounding errors differ from those of an uninterrupted training",
            before,
            now,
            "as set" if is_set else f"because this machine has only {cores} cores",
        )
        return
    log.warning(
        "threads: using %s threads, as in the interrupted training, instead of %s, "
        "because the number of threads affects rounding errors",
        before,
        now,
    )
    torch.set_num_threads(before)
