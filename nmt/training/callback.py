"""Callbacks of the trainer: progress bar, metrics file, trackers, and user-defined callbacks.

A user-defined callback is a subclass of `Callback`, selected in YAML (callback=NAME) or passed in
Python (nmt.train(…, callbacks=[…])). Callbacks run in this order: progress bar, metrics file,
trackers, callback from YAML, callbacks from Python. An exception raised by a callback ends the
training.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.foundation.errors import UserError
from nmt.training.task import Validation


@dataclass(frozen=True)
class Update:
    """Training metrics, logged every `trainer.log_every` updates.

    update: update number, from 1
    total: planned number of updates of the training; an estimate with `time_budget`
    epoch: number of epochs so far, including the finished part of the current epoch
    loss: mean value of the training objective since the last report, in nats per token, with
        dropout and, if set, label smoothing
    rate: learning rate
    gradient_norm: norm of the gradient before clipping
    speed: tokens per second since the last report, as counted by `num_tokens` of the batches
    """

    update: int
    total: int
    epoch: float
    loss: float
    rate: float
    gradient_norm: float
    speed: float


class Callback:
    """Base class of callbacks. All methods do nothing by default.

    every_rank: whether all ranks call the callback, with the same arguments except `speed`; False
        calls it on rank 0 only
    """

    every_rank: ClassVar[bool] = False

    def on_update(self, update: Update) -> None:
        """Called every `trainer.log_every` updates.

        update: training metrics of the updates since the last call
        """

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        """Called after a validation. Its weights are saved already if they are the best so far; the
        training state is saved afterwards.

        update: number of updates so far
        epoch: number of epochs so far, including the finished part of the current epoch
        validation: metrics by name, and the outputs (translations or labels) as `answers`
        best: whether the validation has the best score so far
        """

    def on_rollback(self, update: int) -> None:
        """Called after `trainer.on_nan=rollback` has restored a saved state.

        update: number of updates of the restored state; later updates are repeated
        """

    def on_epoch(self, epoch: int) -> None:
        """Called at the end of an epoch, after its validation.

        epoch: number of finished epochs
        """

    def on_end(self, results: Mapping[str, float] | None) -> None:
        """Called at the end of the run, after the evaluation on the test set.

        results: scores on the test set, or on the validation set if the run has no test; None if
            the run was stopped or has failed
        """


def check_callbacks(callbacks: Any) -> None:
    """Checks user-defined callbacks.

    Raises UserError if a callback is not an instance of a subclass of `Callback`, or has a method
    on_… that the trainer never calls.
    """
    if not isinstance(callbacks, Sequence):
        raise UserError(f"callbacks: must be a list, got {type(callbacks).__name__}")
    called = [name for name in dir(Callback) if name.startswith("on_")]
    for callback in callbacks:
        if not isinstance(callback, Callback):
            kind = getattr(callback, "__name__", type(callback).__name__)
            raise UserError(f"callbacks: {kind} must be an instance of a subclass of Callback")
        for name in dir(callback):
            if name.startswith("on_") and name not in called:
                raise UserError(
                    f"callbacks: {type(callback).__name__}.{name} is never called; the trainer "
                    f"calls the methods {', '.join(called)}"
                )
