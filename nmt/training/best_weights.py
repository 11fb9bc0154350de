"""Validation of a training run: the best weights, and the average of the best snapshots."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from nmt.training.checkpoint_store import Store
from nmt.training.state import TrainingState
from nmt.training.task import Task, Validation

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class BestWeights:
    """Validates weights and keeps the best.

    task: validation of the network
    state: training state, whose weights are validated and whose progress has the best score
    store: storage of checkpoints
    snapshots: maximum number of snapshots for averaging; 0 saves none
    is_stopped: returns whether a validation must be interrupted
    """

    task: Task
    state: TrainingState
    store: Store
    snapshots: int
    is_stopped: Callable[[], bool]

    def validated(self, weights: dict[str, Tensor]) -> Validation:
        """Returns the validation of the given weights. Raises ValidationStopped if it is
        interrupted."""
        with self.state.using(weights):
            return self.task.validate(self.is_stopped)

    def add(self, validation: Validation, weights: dict[str, Tensor]) -> bool:
        """Saves validated weights if they are the best so far, and as a snapshot if they are among
        the best. Returns whether they are the best, which the schedule and the progress record."""
        progress = self.state.progress
        score = validation.metrics[self.task.metric]
        loss = validation.metrics.get("loss", math.inf)
        # Of two equal scores, the one with the smaller loss is better.
        is_tie = score == progress.best and loss < progress.best_loss
        is_best = self.task.better(score, progress.best) or is_tie
        progress.worse = 0 if is_best else progress.worse + 1
        self.state.schedule.observe(is_best)
        if is_best:
            self._save_best(validation, weights)
        if self.snapshots:
            self._save_snapshot(score, weights)
        return is_best

    def add_average(self) -> Validation | None:
        """Averages the snapshots, and saves the average as the best weights if its score is higher.

        Returns the validation of the average, or None if there are fewer than two snapshots or the
        average is no better. Raises ValidationStopped if the validation is interrupted.
        """
        progress = self.state.progress
        updates = [update for update, _ in progress.snapshots]
        if len(updates) < 2:
            progress.averaged = True  # nothing is left to average
            log.warning(
                "trainer.average: fewer than two validations since this setting was made, so "
                "nothing is averaged; lower trainer.validate_every"
            )
            return None
        self.task.ranks.wait()  # until rank 0 has written the snapshots
        weights = self.store.average(updates)
        validation = self.validated(weights)
        progress.averaged = True
        name = self.task.metric
        score = validation.metrics[name]
        if not self.task.better(score, progress.best):
            log.info(
                "trainer.average: the average of the %s best checkpoints has %s %.2f, no "
                "better than the best checkpoint, which is kept",
                len(updates),
                name,
                score,
            )
            return None
        self._save_best(validation, weights, averaged=updates)
        return replace(validation, averaged=True)

    def _save_best(self, validation: Validation, weights: dict[str, Tensor], **facts: Any) -> None:
        """Saves the weights as the best weights so far.

        facts: further entries for the header of the checkpoint
        """
        progress = self.state.progress
        progress.best = validation.metrics[self.task.metric]
        progress.best_loss = validation.metrics.get("loss", math.inf)
        progress.best_update = progress.update
        if self.task.ranks.first:
            header = {"update": progress.update, "metrics": dict(validation.metrics), **facts}
            self.store.save_best(header, weights)

    def _save_snapshot(self, score: float, weights: dict[str, Tensor]) -> None:
        """Saves a snapshot of the weights if their score is among the best validation scores. The
        worst snapshot is removed with the next save of the training state."""
        progress = self.state.progress
        snapshots = [*progress.snapshots, (progress.update, score)]
        worst = max if self.task.better(0.0, 1.0) else min
        while len(snapshots) > self.snapshots:
            snapshots.remove(worst(snapshots, key=lambda snapshot: snapshot[1]))
        progress.snapshots = snapshots
        if self.task.ranks.first and (progress.update, score) in snapshots:
            self.store.save_snapshot(progress.update, weights)
