"""Training loop: gradients, optimizer steps, reports, validations and checkpoints.

The loop is independent of the model. A task provides the network, the objective, the batches and
the validation. The training state can be saved after any update, and resumed training gives
bit-identical results.
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from nmt.foundation import plugins
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.interfaces import Batches, TrainingBatch
from nmt.training.best_weights import BestWeights
from nmt.training.callback import Callback, Update
from nmt.training.checkpoint_store import Store
from nmt.training.epoch_plan import EpochPlan, PlannedBatch, epochs_done
from nmt.training.gradient import Gradient
from nmt.training.interruption import Interruption
from nmt.training.loop_settings import LoopSettings
from nmt.training.state import TrainingProgress, TrainingState
from nmt.training.task import Task, ValidationStopped
from nmt.training.time_budget import PLAN_EVERY, TimeBudget

log = logging.getLogger(__name__)
MAX_FAILURES = 10
"""Number of consecutive skipped updates, or of rollbacks to the same saved state, after which
training stops."""


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
    loss: torch.Tensor
    norm: torch.Tensor


class TrainingLoop:
    """Training loop of one call to `Trainer.fit`.

    The loop also accumulates loss, gradient norm and number of tokens since the last progress
    report.

    settings: settings of the loop
    task: network, data and objective
    state: training state
    store: storage of checkpoints
    callbacks: callbacks to run after updates, validations and epochs
    interruption: whether a stop signal has arrived
    """

    def __init__(
        self,
        settings: LoopSettings,
        task: Task,
        state: TrainingState,
        store: Store,
        callbacks: Sequence[Callback],
        interruption: Interruption,
    ) -> None:
        self.settings = settings
        self.task = task
        self.state = state
        self.store = store
        self.callbacks = callbacks
        self.interruption = interruption
        self.ranks = task.ranks
        self.gradient = Gradient(
            task, state, precision=settings.precision, capture=settings.capture
        )
        self.best_weights = BestWeights(
            task=task,
            state=state,
            store=store,
            snapshots=settings.average,
            is_stopped=lambda: interruption.requested,
        )
        self.epochs = min(settings.max_epochs, task.epochs)
        limit = settings.time_budget
        self.time_budget = None if limit is None else TimeBudget(limit, task.ranks)
        # Whether each update reads its loss and gradient norm; on GPUs, only if it may be skipped.
        self._reads_at_once = self.gradient.device.type == "cpu" or settings.on_nan == "skip"
        self._unread: list[UpdateFigures] = []
        self._saved_at = time.monotonic()
        self._saved_update = state.progress.update
        self._failures = 0
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
        stop_after = self.settings.stop_after
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
        if self.settings.average and not self.progress.averaged and not self._is_stopped():
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
            is_reported = progress.update % self.settings.log_every == 0
            if self.time_budget is not None:
                is_planned = progress.update % min(PLAN_EVERY, self.settings.log_every) == 0
                if is_planned or self.time_budget.is_used_up(self._seconds()):
                    plan = self._plan(batches)
            is_validated = plan.is_validation_due(
                progress.update,
                progress.batch,
                self.settings.validate_every,
                self.settings.validate_every_updates,
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
            self._call(lambda callback: callback.on_epoch(progress.epoch))
            self._save_if_due()

    def _plan(self, batches: Batches) -> EpochPlan:
        """Returns the plan of the current epoch. Raises UserError if the epoch has fewer batches
        than there are ranks."""
        progress = self.progress
        batches_per_update = self.settings.accumulate * self.ranks.count
        # A resumed run may have other batches per update, so the remaining updates are counted.
        remaining = math.ceil((len(batches) - progress.batch) / batches_per_update)
        updates_done = math.ceil(len(batches) / batches_per_update) - remaining
        plan = EpochPlan(
            epoch=progress.epoch,
            batches=len(batches),
            ranks=self.ranks,
            accumulate=self.settings.accumulate,
            updates_before=progress.update - updates_done,
            epochs=self.epochs,
            epochs_of_data=self.task.epochs,
            max_updates=self.settings.max_updates,
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
        if self.time_budget is None or not progress.update:
            return plan
        return self.time_budget.fitted(plan, progress.update, self._seconds())

    def _seconds(self) -> float:
        """Returns the training time so far, in seconds."""
        return self.progress.seconds + time.monotonic() - self._saved_at

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
        is_old = self.ranks.first and minutes > self.settings.save_every
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
        norm = self.state.gradient_norm(self.settings.clip_norm, self.settings.clip_value)
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
            if self.settings.on_nan != "rollback":
                self._failures = 0
        return False

    def _handle_failure(self, update: int) -> None:
        """Skips an update with a NaN or infinite loss or gradient. Depending on `on_nan`, raises
        UserError instead, or RolledBack after a rollback."""
        progress = self.progress
        policy = self.settings.on_nan
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
        self._call(lambda callback: callback.on_rollback(self.progress.update))
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
        self._call(lambda callback: callback.on_update(update))
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
        self._call(lambda c: c.on_validation(progress.update, epoch, validation, is_best))
        if self.settings.patience and progress.worse >= self.settings.patience:
            progress.finished = True
        progress.validated = progress.update
        self.save()
        seconds = time.monotonic() - began
        self._reported_at += seconds  # the speed excludes validations
        if self.time_budget is not None:
            self.time_budget.validation_seconds = seconds

    def _average(self) -> None:
        """Averages the snapshots of weights, and reports the average if it is the best."""
        validation = self.best_weights.add_average()
        if validation is not None:
            update, epoch = self.progress.update, self._position()
            self._call(lambda c: c.on_validation(update, epoch, validation, True))

    def _call(self, method: Callable[[Callback], None]) -> None:
        """Calls a method of every callback. A callback that raises Stopped requests a stop, as a
        signal does, so that the state is saved first."""
        for callback in self.callbacks:
            try:
                method(callback)
            except Stopped:
                self.interruption.requested = True

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
        # With other settings of `on_nan`, every finite update resets the number of failures.
        if self.settings.on_nan == "rollback" and progress.update != self._saved_update:
            self._failures = 0
        self._saved_update = progress.update

    @property
    def _remedy(self) -> str:
        """Returns advice on a NaN or infinite loss, to be included in error messages."""
        remedy = (
            f"lower optimizer.lr or {'' if self.settings.clip_norm else 'set '}trainer.clip_norm"
        )
        if self.settings.precision != "float32":
            remedy += ", or use trainer.precision=float32"
        if self._saved_update:
            remedy += (
                f"; the state of update {self._saved_update:,} is saved, and these settings can be "
                "changed with resume="
            )
        tests = plugins.tests()
        kinds = dict.fromkeys(type(module) for module in self.task.network.modules())
        return remedy + plugins.advice(tests[kind] for kind in kinds if kind in tests)
