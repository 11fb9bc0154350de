"""Warns about training runs with too few updates, and suggests a recipe."""

import logging

from nmt.configuration.recipe_by_size import recipe_for
from nmt.configuration.training_settings import TrainingSettings
from nmt.foundation.ranks import Ranks
from nmt.pipeline.assembly import Parts
from nmt.training.task.translation_task import TranslationTask

log = logging.getLogger(__name__)
FEW_UPDATES = 1000
"""Minimum number of planned updates of a training run without a warning."""


def advise_recipe(settings: TrainingSettings, parts: Parts, ranks: Ranks) -> None:
    """Logs a warning if few updates are planned, with the recommended experiment for the data size.

    There is no warning for fine-tuning, generated data, or an explicit number of updates.
    """
    task = parts.task
    trainer = settings.trainer
    is_generated = getattr(settings.view.parts["data"], "generated", False)
    if is_generated or trainer["max_updates"] or getattr(settings, "init", None):
        return
    if not isinstance(task, TranslationTask):
        return
    batches = trainer["max_epochs"] * len(task.batches(0))
    updates = batches // (trainer["accumulate"] * ranks.count)
    pairs = len(task.data.kept)
    if updates < FEW_UPDATES:
        log.warning(
            "trainer.max_epochs: the training has only %s updates, but translation needs "
            "thousands; raise trainer.max_epochs, or use the recipe for %s pairs, "
            "experiment=%s",
            f"{updates:,}",
            f"{pairs:,}",
            recipe_for(pairs),
        )
