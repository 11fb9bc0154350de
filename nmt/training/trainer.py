"""Training loop: gradients, optimizer steps, reports, validations and checkpoints.

The loop is independent of the model. A task provides the network, the objective, the batches and
the validation. The training state can be saved after any update, and resumed training gives
bit-identical results.
"""

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from nmt.foundation import plugins
from nmt.foundation.devices import Precision
from nmt.foundation.durations import seconds_of
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.interfaces import Batches, TrainingBatch
from nmt.foundation.part_limits import RunView, idle_keys
from nmt.foundation.ranges import Count, Fraction, NonNegative, Positive, Size
from nmt.training.best_weights import BestWeights
from nmt.training.callback import Callback, Update
from nmt.training.checkpoint_store import Store
from nmt.training.epoch_plan import EpochPlan, PlannedBatch, epochs_done
from nmt.training.gradient import Gradient
from nmt.training.interruption import Interruption, interruptible
from nmt.training.schedule import Schedule
from nmt.training.state import TrainingProgress, TrainingState
from nmt.training.task import Task, ValidationStopped

log = logging.getLogger(__name__)
OnNaN = Literal["stop", "skip", "rollback"]
"""Reaction to a NaN or infinite loss or gradient: stop the training, skip the update, or roll back
to the last saved state.
"""
MAX_FAILURES = 10
"""Number of consecutive skipped updates, or of rollbacks to the same saved state, after which
training stops."""
PLAN_EVERY = 20
"""Maximum number of updates between two estimates of the number of updates in a time budget."""


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Settings of the training loop."""

    max_epochs: Size = 10
    """Maximum number of epochs to train."""
    max_updates: Count = 0
    """Maximum number of updates to train; 0 for no limit."""
    time_budget: str | float | None = None
    """Maximum time of the training with its validations: a number of minutes, or text such as 90s,
    30m or 2h. The total number of updates, which the learning-rate schedule needs, is computed from
    the measured speed. None for no limit."""
    stop_after: Count = 0
    """Number of epochs after which training pauses, with a checkpoint to resume from. The schedule
    still uses the full length of the training. 0 disables the pause."""
    accumulate: Size = 1
    """Number of batches whose gradients each rank accumulates per update."""
    clip_norm: NonNegative = 1.0
    """Maximum norm of the gradient; 0 disables clipping by norm."""
    clip_value: NonNegative = 0.0
    """Maximum absolute value in the gradient; 0 disables clipping by value."""
    precision: Precision = "float32"
    """Precision of the matrix multiplications: the name of an autocast dtype, or float32."""
    validate_every: Positive = 1.0
    """Number of epochs between two validations, possibly fractional."""
    validate_every_updates: Count = 0
    """Number of updates between two validations; 0 uses `validate_every`."""
    patience: Count = 0
    """Number of validations without improvement after which training stops; 0 disables early
    stopping."""
    ema: Fraction = 0.0
    """Decay per update of the exponential moving average of the weights. The average is validated,
    and saved as the best weights. 0 disables the average."""
    average: Count = 0
    """Number of best validations whose weights are averaged at the end of training. The average is
    saved if it scores higher than the best weights. 0 disables averaging."""
    save_every: NonNegative = 5.0
    """Minutes between two saves of the training state."""
    log_every: Size = 20
    """Number of updates between two progress reports."""
    keep: Size = 1
    """Number of most recent training checkpoints to keep in the run folder."""
    on_nan: OnNaN = "stop"
    """Reaction to a NaN or infinite loss or gradient. NaN or infinite weights are never saved.

    stop: raise an error and keep the last saved state
    skip: skip the update; raise an error after 10 consecutive skipped updates
    rollback: restore the last saved state and halve the learning rate

    On GPUs, loss and gradient are read only before a report, a validation or a save, because each
    reading waits for the GPU. With `skip`, loss and gradient are read at every update.
    """
    shard: bool = False
    """Whether the optimizer's state and the moving average are divided among the ranks to save
    memory."""
    capture: bool | None = None
    """Whether the computation of the gradient is recorded once per batch shape and then replayed.
    Batches are padded to one of at most 64 shapes. On a GPU, a recording is a CUDA graph, and
    training is several times as fast. On a CPU, replaying is slower and only useful for tests. None
    records on a GPU only."""

    def __post_init__(self) -> None:
        if self.time_budget is not None:
            seconds_of("time_budget", self.time_budget)

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
        resume: tuple[dict[str, Any], dict[str, Tensor]] | None = None,
    ) -> TrainingProgress:
        """Trains the task's network to the end.

        task: network, data and objective
        optimizer: optimizer of the network's weights
        schedule: learning-rate schedule
        store: storage of checkpoints
        callbacks: callbacks to run after updates, validations and epochs
        resume: state and tensors of the checkpoint to resume from; None for a new training

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
            # A run that ended by its limits may continue; a run that ended by patience may not.
            state.progress.finished = 0 < self.patience <= state.progress.worse
        with interruptible() as interruption:
            loop = TrainingLoop(self, task, state, store, callbacks, interruption)
            if resume is None:
                loop.save()  # makes the run resumable before its first update
            task.network.train()
            loop.run()
        return state.progress


class RolledBack(Exception):
    """Exception raised after the last saved state has been restored."""


class UpdateFigures(NamedTuple):
    """Loss and gradient norm of one update. On a GPU, reading the tensors blocks until they are
    computed.

    update: number of the update, from 1
    tokens: number of tokens, summed over all ranks
    loss: loss of this rank, summed over its tokens
    norm: gradient norm before clipping by norm
    """

    update: int
    tokens: int
    loss: Tensor
    norm: Tensor


class TrainingLoop:
    """Training loop of one call to `Trainer.fit`.

    The loop also accumulates loss, gradient norm and number of tokens since the last progress
    report.
    """

    def __init__(
        self,
        trainer: Trainer,
        task: Task,
        state: TrainingState,
        store: Store,
        callbacks: Sequence[Callback],
        interruption: Interruption,
    ) -> None:
        self.trainer = trainer
        self.task = task
        self.state = state
        self.store = store
        self.callbacks = callbacks
        self.interruption = interruption
        self.ranks = task.ranks
        self.gradient = Gradient(task, state, precision=trainer.precision, capture=trainer.capture)
        self.best_weights = BestWeights(
            task=task,
            state=state,
            store=store,
            snapshots=trainer.average,
            is_stopped=lambda: interruption.requested,
        )
        self.epochs = min(trainer.max_epochs, task.epochs)
        # Whether each update reads its loss and gradient norm; on GPUs, only if it may be skipped.
        self._reads_at_once = self.gradient.device.type == "cpu" or trainer.on_nan == "skip"
        self._unread: list[UpdateFigures] = []
        self._saved_at = time.monotonic()
        self._saved_update = state.progress.update
        self._failures = 0
        self._validation_seconds = 0.0
        self._is_fitted = False
        self._reset_figures()

    @property
    def progress(self) -> TrainingProgress:
        return self.state.progress

    def _reset_figures(self) -> None:
        self._tokens = 0
        self._loss = 0.0
        self._norm = 0.0
        self._reported_at = time.monotonic()

    def run(self) -> None:
        """Trains to the end. Raises Stopped, after saving the state, if training is interrupted."""
        try:
            self._run()
        except ValidationStopped:  # the resumed run repeats the validation
            self.save()
            raise Stopped from None

    def _run(self) -> None:
        stop_after = self.trainer.stop_after
        while not self.progress.finished and self.progress.epoch < self.epochs:
            if 0 < stop_after <= self.progress.epoch:
                self._validate_rest()
                self.save()
                raise Stopped(planned=True)
            # After a rollback, training continues from the restored state.
            with contextlib.suppress(RolledBack):
                self.epoch(self.task.batches(self.progress.epoch))
        self._validate_rest()
        self.progress.finished = True
        if self.trainer.average and not self.progress.averaged and not self._is_stopped():
            self._average()
        stopped = self._is_stopped()
        self.save()
        if stopped:
            raise Stopped

    def _is_stopped(self) -> bool:
        """Returns whether a stop signal, such as Ctrl-C, has arrived on any rank."""
        return self.ranks.any(self.interruption.requested)

    def _validate_rest(self) -> None:
        """Validates the network if the last updates are not validated, as in a run that is resumed
        with a lower limit, or that a time budget ends between two epochs."""
        if self.progress.update > self.progress.validated:
            self._validate(self._position())

    def _position(self) -> float:
        """Returns the number of epochs so far, including the finished part of the current epoch."""
        progress = self.progress
        batches = len(self.task.batches(progress.epoch)) if progress.batch else 1
        return epochs_done(progress.epoch, progress.batch / batches, self.task.epochs)

    def epoch(self, batches: Batches) -> None:
        """Runs the remaining updates of an epoch.

        batches: all batches of the epoch

        Raises Stopped, after saving the state, if training is interrupted, and RolledBack after a
        rollback, perhaps to an earlier epoch.
        """
        progress = self.progress
        plan = self._plan(batches)
        if progress.validating:
            self._validate(plan.position(progress.batch))
        for update, share in self._updates(plan, batches):
            # Training has ended by patience or by the time budget.
            if progress.finished or progress.update >= plan.total_updates:
                break
            self.state.set_rate(plan.total_updates, plan.position(progress.batch))
            self._update(share, plan.total_updates)
            progress.update += 1
            progress.batch = update.stop
            progress.averaged = False  # there is a newer state than the average
            is_reported = progress.update % self.trainer.log_every == 0
            is_planned = progress.update % min(PLAN_EVERY, self.trainer.log_every) == 0
            has_budget = self.trainer.time_budget is not None
            if has_budget and (is_planned or self.ranks.any(self._seconds_left() <= 0)):
                plan = self._plan(batches)
            is_validated = plan.is_validation_due(
                progress.update,
                progress.batch,
                self.trainer.validate_every,
                self.trainer.validate_every_updates,
            )
            is_last = progress.batch >= len(batches) or progress.update >= plan.total_updates
            if is_reported or is_validated or is_last:
                self._read_figures()
            if is_reported:
                self._report(plan)
            if is_validated:
                self._validate(plan.position(progress.batch))
            self._save_if_due()
        if progress.update >= plan.total_updates:
            progress.finished = True
        if progress.batch >= len(batches):
            progress.epoch += 1
            progress.batch = 0
            for callback in self.callbacks:
                callback.on_epoch(progress.epoch)

    def _plan(self, batches: Batches) -> EpochPlan:
        """Returns the plan of the current epoch. Raises UserError if the epoch has fewer batches
        than there are ranks."""
        progress = self.progress
        batches_per_update = self.trainer.accumulate * self.ranks.count
        # A resumed run may have other batches per update, so the remaining updates are counted.
        remaining = math.ceil((len(batches) - progress.batch) / batches_per_update)
        updates_done = math.ceil(len(batches) / batches_per_update) - remaining
        plan = EpochPlan(
            epoch=progress.epoch,
            batches=len(batches),
            ranks=self.ranks,
            accumulate=self.trainer.accumulate,
            updates_before=progress.update - updates_done,
            epochs=self.epochs,
            epochs_of_data=self.task.epochs,
            max_updates=self.trainer.max_updates,
        )
        if len(batches) < self.ranks.count and self.task.epochs - progress.epoch >= 1:
            raise UserError(
                f"data: an epoch has only {len(batches):,} batch{'es' * (len(batches) > 1)} "
                f"for {self.ranks.count} processes; start fewer processes, or lower "
                "batching.sentences"
            )
        warmup = self.state.schedule.warmup
        # A rollback to update 0 does not repeat the warning.
        if progress.update == progress.halvings == 0 and warmup >= plan.total_updates:
            log.warning(
                "schedule.warmup=%s: training has only %s updates in total, so the learning rate "
                "never reaches optimizer.lr; lower schedule.warmup",
                warmup,
                plan.total_updates,
            )
        return self._fitted(plan)

    def _fitted(self, plan: EpochPlan) -> EpochPlan:
        """Returns the plan of an epoch, shortened to the updates that fit into the time budget at
        the average speed so far. Logs the number of updates once."""
        update = self.progress.update
        if self.trainer.time_budget is None or not update:
            return plan
        left = max(0.0, self._seconds_left())
        possible = self.ranks.of_first(update + int(left * update / self._seconds()))
        fitted = replace(plan, max_updates=min(plan.total_updates, possible))
        if not self._is_fitted and possible < plan.total_updates:
            log.info(
                "time_budget=%s: about %s updates at the measured speed, instead of %s",
                self.trainer.time_budget,
                f"{possible:,}",
                f"{plan.total_updates:,}",
            )
        self._is_fitted = True
        return fitted

    def _seconds(self) -> float:
        """Returns the training time so far, in seconds."""
        return self.progress.seconds + time.monotonic() - self._saved_at

    def _seconds_left(self) -> float:
        """Returns the seconds of the time budget that are left for updates."""
        assert self.trainer.time_budget is not None
        budget = seconds_of("time_budget", self.trainer.time_budget)
        # The last update is followed by a validation.
        return budget - self._seconds() - self._validation_seconds

    def _updates(
        self, plan: EpochPlan, batches: Batches
    ) -> Iterator[tuple[range, list[tuple[PlannedBatch, TrainingBatch]]]]:
        """Yields a pair for each remaining update of the epoch: the range of the update's batch
        indices over all ranks, and the batches of this rank."""
        updates = plan.updates_from(self.progress.batch)
        shares = [plan.share(update) for update in updates]
        # A single reader for all updates can prepare batches ahead.
        reader = batches.read([planned.number for share in shares for planned in share])
        for update, share in zip(updates, shares, strict=True):
            yield update, [(planned, next(reader)) for planned in share]

    def _save_if_due(self) -> None:
        """Saves the state if `save_every` minutes have passed or a signal has arrived. Raises
        Stopped after a signal."""
        minutes = (time.monotonic() - self._saved_at) / 60
        is_old = self.ranks.first and minutes > self.trainer.save_every
        stopped = self._is_stopped()
        if stopped or self.ranks.any(is_old):
            self._read_figures()
            self.save()
        if stopped:
            raise Stopped

    def _update(self, share: list[tuple[PlannedBatch, TrainingBatch]], total: int) -> None:
        """Runs one update with the gradient of the mean loss per token over all ranks' batches.

        share: batches that this rank processes
        total: number of updates in the training
        """
        tokens, loss = self.gradient.accumulate(share, total)
        norm = self.state.gradient_norm(self.trainer.clip_norm, self.trainer.clip_value)
        self._unread.append(UpdateFigures(self.progress.update + 1, tokens, loss, norm))
        is_skipped = self._reads_at_once and self._read_figures()
        if not is_skipped:
            self.state.step()

    def _read_figures(self) -> bool:
        """Reads loss and gradient norm of the updates since the last call, and adds them to the
        next report.

        Returns whether the last update is skipped because its loss or gradient is NaN or infinite.
        Raises UserError if `on_nan` requires that the training stops, and RolledBack after a
        rollback.
        """
        if not self._unread:
            return False
        unread, self._unread = self._unread, []
        figures = [value for update in unread for value in (update.loss, update.norm)]
        values = torch.stack(figures).tolist()  # a single copy from a GPU
        losses = self.ranks.sums(*values[0::2])  # over all ranks
        for update, loss, norm in zip(unread, losses, values[1::2], strict=True):
            # With float16, the scaler skips updates whose gradients overflow.
            scaled = self.state.scaler.is_enabled() and math.isfinite(loss)
            if not scaled and not math.isfinite(norm + loss):
                self._failures += 1
                self._handle_failure(update.update)
                return True
            self._tokens += update.tokens
            self._loss += loss
            self._norm = norm
            if self.trainer.on_nan != "rollback":
                self._failures = 0
        return False

    def _handle_failure(self, update: int) -> None:
        """Skips an update with a NaN or infinite loss or gradient. Depending on `on_nan`, raises
        UserError instead, or RolledBack after a rollback."""
        progress = self.progress
        policy = self.trainer.on_nan
        problem = f"loss or gradient is NaN or infinite at update {update:,}"
        if policy == "stop" or self._failures >= MAX_FAILURES:
            raise UserError(f"{problem}: {self._remedy}")
        self.state.discard_gradient()
        if policy == "skip":
            log.warning("%s: update skipped", problem)
            progress.skipped += 1
            self._norm = 0.0
            return
        log.warning("%s: restoring the last saved state with half the learning rate", problem)
        self.ranks.wait()  # until rank 0 has written the state
        self.state.load(*self.store.load_last())
        self.progress.halvings = progress.halvings + 1
        for callback in self.callbacks:
            callback.on_rollback(self.progress.update)
        self._reset_figures()
        raise RolledBack

    def _report(self, plan: EpochPlan) -> None:
        """Reports training metrics to the callbacks, unless all updates since the last report were
        skipped."""
        if not self._tokens:
            return
        update = Update(
            update=self.progress.update,
            total=plan.total_updates,
            epoch=plan.position(self.progress.batch),
            loss=self._loss / self._tokens,
            rate=self.state.optimizer.param_groups[0]["lr"],
            gradient_norm=self._norm,
            speed=self._tokens / (time.monotonic() - self._reported_at),
        )
        for callback in self.callbacks:
            callback.on_update(update)
        self._reset_figures()

    def _validate(self, epoch: float) -> None:
        """Validates the network, saves its weights if they are the best so far, and passes the
        outcome to the schedule and the callbacks. Marks the training as finished after `patience`
        consecutive validations without improvement."""
        progress = self.progress
        began = time.monotonic()
        weights = self.state.weights()
        progress.validating = True  # a stop from here on repeats the validation
        validation = self.best_weights.validated(weights)
        progress.validating = False
        score = validation.metrics[self.task.metric]
        loss = validation.metrics.get("loss", math.inf)
        if not math.isfinite(score) or math.isnan(loss):
            raise UserError(
                f"validation {self.task.metric} or loss is NaN or infinite at update "
                f"{progress.update:,}: {self._remedy}"
            )
        is_best = self.best_weights.add(validation, weights)  # before the save of the schedule
        for callback in self.callbacks:
            callback.on_validation(progress.update, epoch, validation, is_best)
        if self.trainer.patience and progress.worse >= self.trainer.patience:
            progress.finished = True
        progress.validated = progress.update
        self.save()
        self._validation_seconds = time.monotonic() - began
        self._reported_at += self._validation_seconds  # the speed excludes validations

    def _average(self) -> None:
        """Averages the snapshots of weights, and reports the average if it is the best."""
        validation = self.best_weights.add_average()
        if validation is not None:
            for callback in self.callbacks:
                callback.on_validation(self.progress.update, self._position(), validation, True)

    def save(self) -> None:
        """Saves the state from which training can resume. Raises UserError, without saving, if
        weights are NaN or infinite."""
        progress = self.progress
        if not self.state.sound():
            raise UserError(
                f"weights are NaN or infinite at update {progress.update:,}: {self._remedy}"
            )
        now = time.monotonic()
        progress.seconds += now - self._saved_at
        self._saved_at = now
        saved = self.state.save()
        if saved is not None:
            self.store.save_last(*saved)
        if progress.update != self._saved_update:
            self._saved_update = progress.update
            self._failures = 0

    @property
    def _remedy(self) -> str:
        """Returns advice on a NaN or infinite loss, to be included in error messages."""
        remedy = "lower optimizer.lr or trainer.clip_norm"
        if not self.trainer.clip_norm:
            remedy = "lower optimizer.lr or set trainer.clip_norm"
        if self.trainer.precision != "float32":
            remedy += ", or use trainer.precision=float32"
        if self._saved_update:
            remedy += (
                f"; the state of update {self._saved_update:,} is saved, and these settings can be "
                "changed with resume="
            )
        tests = plugins.tests()
        kinds = dict.fromkeys(type(module) for module in self.task.network.modules())
        return remedy + plugins.advice(tests[kind] for kind in kinds if kind in tests)
