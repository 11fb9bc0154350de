"""Training of a task's network: the training state, the training loop and its settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nmt.foundation.part_limits import RunView, idle_keys
from nmt.training.callback import Callback
from nmt.training.checkpoint_store import Store
from nmt.training.interruption import interruptible
from nmt.training.loop_settings import LoopSettings
from nmt.training.schedule import Schedule
from nmt.training.state import TrainingProgress, TrainingState
from nmt.training.task import Task
from nmt.training.training_loop import TrainingLoop


@dataclass(frozen=True, kw_only=True)
class Trainer(LoopSettings):
    """Trainer of a task's network, with the settings of its training loop."""

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the configuration keys of averaging and validation that have no effect, each with
        the reason."""
        average = run.value("trainer.average")
        updates = run.value("trainer.validate_every_updates")
        interval = run.value("trainer.validate_every") or cls.validate_every
        epochs = run.value("trainer.max_epochs") or cls.max_epochs
        validates_once = not updates and epochs <= interval
        return idle_keys(
            (
                average == 1,
                "the number of averaged checkpoints must be 0 or at least 2",
                "trainer.average",
            ),
            (
                updates,
                f"trainer.validate_every_updates={updates} takes precedence",
                "trainer.validate_every",
            ),
            (
                average and validates_once,
                "the training validates only once; lower trainer.validate_every",
                "trainer.average",
            ),
        )

    def fit(
        self,
        task: Task,
        *,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        store: Store,
        callbacks: Sequence[Callback] = (),
        resume: tuple[dict[str, Any], dict[str, torch.Tensor]] | None = None,
        is_over: bool = False,
    ) -> TrainingProgress:
        """Trains the task's network to the end.

        task: network, data and objective
        optimizer: optimizer of the network's weights
        schedule: learning-rate schedule
        store: storage of checkpoints
        callbacks: callbacks to run after updates, validations and epochs
        resume: state and tensors of the checkpoint to resume from; None for a new training
        is_over: whether the resumed training has reached its limits, so that it makes no update

        Returns the progress of the finished training. Raises Stopped, after saving the state, if
        training is interrupted. Raises UserError if the loss or gradient is NaN or infinite, unless
        `on_nan` permits training to continue.
        """
        state = TrainingState(
            task.network,
            optimizer,
            schedule,
            ema=self.ema,
            scale=self.precision == "float16",
            ranks=task.ranks,
            shard=self.shard,
        )
        if resume is not None:
            state.load(*resume)
            # The limits may have been raised. A run that ended by patience may not continue.
            state.progress.finished = is_over or 0 < self.patience <= state.progress.worse
        with interruptible() as interruption:
            loop = TrainingLoop(self, task, state, store, callbacks, interruption)
            # Makes the run resumable before its first update. A rollback or another resume of a
            # resumed run continues with its current settings.
            loop.save()
            task.network.train()
            loop.run()
        return state.progress
