"""Callbacks of the trainer: progress bar, metrics file, trackers, and those of users.

A user's callback is a subclass of `Callback`, chosen by YAML (callback=NAME) or given in Python
(nmt.train(…, callbacks=[…])). The order of calls: progress bar, metrics file, trackers, the
callback of the YAML, those of Python. An error of a callback ends the training.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from nmt.training.task import Validation


@dataclass(frozen=True)
class Update:
    """Figures of training, logged every `trainer.log_every` updates.

    update: number of the update, from 1
    total: number of updates of the training
    epoch: epochs that are done
    loss: nats per token since the last report, with label smoothing
    rate: learning rate
    gradient_norm: before clipping
    speed: tokens per second, as `num_tokens` of the batches counts them
    """

    update: int
    total: int
    epoch: float
    loss: float
    rate: float
    gradient_norm: float
    speed: float


class Callback:
    """Base of callbacks, whose methods do nothing.

    every_rank: whether all ranks call it, with the same values except `speed`; else rank 0 alone
    """

    every_rank: ClassVar[bool] = False

    def on_update(self, update: Update) -> None:
        """Figures of the updates since the last call.

        update: number of the last of them, with its figures
        """

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        """A validation, before the checkpoint is saved.

        update: number of updates done
        epoch: epochs that are done
        validation: `metrics` by name, and `answers`, the translations or labels
        best: whether it is the best so far
        """

    def on_epoch(self, epoch: int) -> None:
        """The end of an epoch, after its validation.

        epoch: number of epochs done
        """

    def on_end(self, results: Mapping[str, float] | None) -> None:
        """The end of the run, after the test.

        results: final scores; None: stopped or failed
        """
