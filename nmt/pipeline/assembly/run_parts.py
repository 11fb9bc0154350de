"""Components of a training run: task, trainer, optimizer, schedule, trackers and callback."""

from functools import partial

import torch

from nmt import components
from nmt.configuration.training_settings import ClassifySettings, TrainingSettings, TrainSettings
from nmt.foundation.errors import UsageError
from nmt.foundation.extras import installed, require
from nmt.foundation.ranks import ALONE, Ranks
from nmt.model.precision import usable_precision
from nmt.pipeline.assembly.classification_parts import classification_task
from nmt.pipeline.assembly.translation_parts import (
    check_new_training,
    filters_of,
    loaded,
    translation_task,
)
from nmt.storage.checkpoint import Checkpoint
from nmt.training.callback import check_callbacks
from nmt.training.task import Task
from nmt.training.task.classification_task import fingerprints as of_classification
from nmt.training.task.translation_task import fingerprints as of_translation
from nmt.training.tracker import TensorBoard, Tracker
from nmt.training.training_run import Parts

SAMPLES = 5
"""Number of validation sentences whose translations are sent to experiment trackers."""


def parts_of(
    settings: TrainingSettings,
    device: torch.device,
    ranks: Ranks = ALONE,
    saved: Checkpoint | None = None,
) -> Parts:
    """Builds all components of a run.

    settings: validated settings of nmt.train or nmt.classify
    device: device of the network
    ranks: all processes of the training, started by torchrun
    saved: checkpoint of the run to resume; None for a new run

    Raises UserError if the data, or a model named in the settings, cannot be used.
    """
    config = settings.values
    trackers = trackers_of(config) if ranks.first else []
    if isinstance(settings, ClassifySettings):
        task: Task = classification_task(settings, saved, device, ranks)
    else:
        assert isinstance(settings, TrainSettings)
        if saved is None:
            ranks.on_first(partial(check_new_training, settings))
        task = translation_task(settings, saved, device, ranks, SAMPLES if trackers else 0)
    precision = usable_precision(settings.trainer["precision"], device)
    trainer = components.make({"trainer": {**settings.trainer, "precision": precision}}, "trainer")
    if trainer.shard and not ranks.several:
        raise UsageError(
            "trainer.shard=true: needs several processes; start them with torchrun, or set "
            "trainer.shard=false"
        )
    # Frozen weights have no state in the optimizer.
    weights = [p for p in task.network.parameters() if p.requires_grad]
    optimizer = components.make(config, "optimizer", parameters=weights)
    callbacks = [components.make(config, "callback")] if config.get("callback") else []
    check_callbacks(callbacks)
    return Parts(
        task=task,
        trainer=trainer,
        optimizer=ranks.sharded(optimizer) if trainer.shard else optimizer,
        schedule=components.make(config, "schedule"),
        trackers=trackers,
        callbacks=callbacks,
    )


def trackers_of(config: components.Config) -> list[Tracker]:
    """Returns the configured experiment tracker, and TensorBoard if installed.

    Raises UserError if the package of the configured tracker is not installed.
    """
    trackers: list[Tracker] = []
    tracker = components.make(config, "tracker") if config.get("tracker") else None
    if tracker is not None and not isinstance(tracker, TensorBoard):
        require(tracker.package)
        trackers.append(tracker)
    if installed("tensorboard"):
        trackers.append(TensorBoard())
    return trackers


def fingerprints(command: str, config: components.Config) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the SHA-256 digests of a configuration's data sets in two dictionaries by name of the
    set: one for the training set and every validation set, and one for the test set.

    Raises UserError if the data cannot be read.
    """
    if command == "train":
        return of_translation(loaded(config, filters_of(config)))
    return of_classification(components.make(config, "data").labelled())
