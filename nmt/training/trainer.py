"""The training loop: batch, forward, backward, step, log, validate, save.

It is independent of the model: a task brings the network, the objective, the batches and the
validation. The whole state (state.py) can be saved after any update and resumed, bit for bit.
"""

import hashlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from nmt.foundation.devices import Precision
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.interfaces import Batches, TrainingBatch
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Count, Fraction, NonNegative, Positive, Size
from nmt.training.callback import Callback, Update
from nmt.training.epoch_plan import EpochPlan, PlannedBatch
from nmt.training.interruption import Interruption, interruptible
from nmt.training.schedule import Schedule
from nmt.training.state import TrainingProgress, TrainingState
from nmt.training.task import Task, Validation, ValidationStopped

log = logging.getLogger(__name__)
OnNaN = Literal["stop", "skip", "rollback"]
REMEDY = "lower optimizer.lr or trainer.clip_norm, or use trainer.precision=float32"
PATIENCE = 10
"""Updates: training stops after this many skipped in a row, or after this many rollbacks to one
saved state."""
AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Type of the matrix products under autocast; None: no autocast."""


@runtime_checkable
class Store(Protocol):
    """Storage of checkpoints. `state` is JSON, tensors are given by name."""

    def save_last(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None: ...
    def load_last(self) -> tuple[dict[str, Any], dict[str, Tensor]]: ...
    def save_best(self, state: dict[str, Any], weights: dict[str, Tensor]) -> None: ...
    def save_snapshot(
        self, update: int, weights: dict[str, Tensor], keep: Sequence[int]
    ) -> None: ...
    def average(self, updates: Sequence[int]) -> dict[str, Tensor]: ...


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """Settings of the training loop."""

    max_epochs: Size = 10
    """Epochs of the training."""
    max_updates: Count = 0
    """Updates of the training; 0: no bound."""
    stop_after: Count = 0
    """Epochs after which training stops with a checkpoint to resume from; 0: it does not stop
    early."""
    accumulate: Size = 1
    """Batches per update and rank."""
    clip_norm: NonNegative = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    clip_value: NonNegative = 0.0
    """Largest value in the gradient; 0: no clipping."""
    precision: Precision = "float32"
    """Autocast type of the matrix products."""
    validate_every: Positive = 1.0
    """Epochs between two validations."""
    validate_every_updates: Count = 0
    """Updates between two validations, which count instead of epochs; 0: by epochs."""
    patience: Count = 0
    """Validations without improvement before training stops; 0: never."""
    ema: Fraction = 0.0
    """Decay of an exponential moving average of the weights, which is validated and kept as best;
    0: none."""
    average: Count = 0
    """Best validations whose weights are averaged at the end, and kept if they are better; 0:
    none."""
    save_every: NonNegative = 5.0
    """Minutes between two saves of everything needed to resume."""
    log_every: Size = 20
    """Updates between two reports."""
    keep: Size = 1
    """Latest checkpoints that are kept."""
    on_nan: OnNaN = "stop"
    """Reaction to a NaN or infinite loss or gradient. Weights that contain NaN or inf are never
    saved.

    stop: an error; the last saved state remains.
    skip: the update is skipped; an error after PATIENCE of them in a row.
    rollback: the last saved state is loaded again, with half the learning rate.
    """
    shard: bool = False
    """Whether each rank keeps only its share of the optimizer's state and of the moving average."""

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys of averaging and validation that change nothing."""
        average = run.value("trainer.average")
        updates = run.value("trainer.validate_every_updates")
        interval = run.value("trainer.validate_every") or cls.validate_every
        epochs = run.value("trainer.max_epochs") or cls.max_epochs
        reasons = {}
        if average == 1:
            reasons["trainer.average"] = "is the best model alone; give at least 2, or 0"
        if updates:
            reasons["trainer.validate_every"] = f"validation is every {updates} updates"
        elif average and average > 1 and epochs <= interval:
            reasons["trainer.average"] = (
                "there is only one validation; lower trainer.validate_every"
            )
        return reasons

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

        task: network, data and objective.
        optimizer: optimizer of the network's weights.
        schedule: schedule of its learning rate.
        store: saves checkpoints.
        callbacks: called after updates, validations and epochs.
        resume: state and tensors of the checkpoint to continue from; None: a new training.

        Raises Stopped, after saving, if it is interrupted; UserError if the loss is NaN or
        infinite.
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
            # Longer trainings may follow: only patience has ended this one for good.
            state.progress.finished = 0 < self.patience <= state.progress.worse
        with interruptible() as interruption:
            loop = TrainingLoop(self, task, state, store, callbacks, interruption)
            if resume is None:
                loop.save()  # the run can be resumed from now on
            task.network.train()
            loop.run()
        return state.progress


class TrainingLoop:
    """One call of `Trainer.fit`: its parts, and the figures since the last report."""

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
        self.network = task.ranks.wrapped(task.network)
        self.estimates = task.network.estimates()
        self.epochs = min(trainer.max_epochs, task.epochs)
        self._counted_from = time.monotonic()
        self._saved_at = self._counted_from
        self._saved_update = state.progress.update
        self._failures = 0
        self._reset_figures()

    @property
    def progress(self) -> TrainingProgress:
        return self.state.progress

    def _reset_figures(self) -> None:
        self._tokens = 0
        self._loss = 0.0
        self._reported_at = time.monotonic()

    def run(self) -> None:
        """Trains to the end. Raises Stopped after saving."""
        stop_after = self.trainer.stop_after
        while not self.progress.finished and self.progress.epoch < self.epochs:
            if 0 < stop_after <= self.progress.epoch:
                raise Stopped(planned=True)
            self.epoch(self.task.batches(self.progress.epoch))
            if self.progress.epoch == stop_after and not self.progress.finished:
                self.save()
        self.progress.finished = True
        if self.trainer.average and not self.progress.averaged and not self._is_stopped():
            self.try_average()
        stopped = self._is_stopped()
        self.save()
        if stopped:
            raise Stopped

    def _is_stopped(self) -> bool:
        """Whether a signal has arrived on some rank."""
        return self.ranks.any(self.interruption.requested)

    def epoch(self, batches: Batches) -> None:
        """Trains the rest of an epoch. Raises Stopped, after saving, if interrupted."""
        progress = self.progress
        plan = self._plan(batches)
        if progress.validating:
            self._validate(plan.position(progress.batch))
        for update, share in self._updates(plan, batches):
            if progress.finished:  # by patience
                break
            self.state.set_rate(plan.total_updates, plan.position(progress.batch))
            norm = self._update(share, plan.total_updates)
            if norm is None:
                return  # rolled back, perhaps into another epoch
            progress.update += 1
            progress.batch = update.stop
            progress.averaged = False
            if progress.update % self.trainer.log_every == 0:
                self._report(plan, norm)
            if plan.is_validation_due(
                progress.update,
                progress.batch,
                self.trainer.validate_every,
                self.trainer.validate_every_updates,
            ):
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
        """The plan of the present epoch. Raises UserError if it has too few batches for the
        ranks."""
        progress = self.progress
        updates_done = math.ceil(progress.batch / (self.trainer.accumulate * self.ranks.count))
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
                f"an epoch has only {len(batches):,} batch{'es' * (len(batches) > 1)} for "
                f"{self.ranks.count} processes: start fewer, or make batches smaller "
                "(batching.sentences)"
            )
        warmup = self.state.schedule.warmup
        if not progress.update and warmup >= plan.total_updates:
            log.warning(
                "schedule.warmup=%s: the training has only %s updates, so the learning rate never "
                "reaches optimizer.lr; lower schedule.warmup",
                warmup,
                plan.total_updates,
            )
        return plan

    def _updates(
        self, plan: EpochPlan, batches: Batches
    ) -> Iterator[tuple[range, list[tuple[PlannedBatch, TrainingBatch]]]]:
        """The batches of each further update: numbers of all ranks' batches, and this rank's
        batches."""
        updates = plan.updates_from(self.progress.batch)
        shares = [plan.share(update) for update in updates]
        # One reader for all updates, so that it can prepare batches ahead.
        reader = batches.read([planned.number for share in shares for planned in share])
        for update, share in zip(updates, shares, strict=True):
            yield update, [(planned, next(reader)) for planned in share]

    def _save_if_due(self) -> None:
        """Saves now and then, and before a stop. Raises Stopped."""
        minutes = (time.monotonic() - self._saved_at) / 60
        is_old = self.ranks.first and minutes > self.trainer.save_every
        stopped = self._is_stopped()
        if stopped or self.ranks.any(is_old):
            self.save()
        if stopped:
            raise Stopped

    def _update(self, share: list[tuple[PlannedBatch, TrainingBatch]], total: int) -> Tensor | None:
        """One update of `total`, from the gradient of the mean loss per token of all ranks'
        batches.

        Returns the gradient's norm before clipping, or None if training was rolled back instead.
        """
        counted = sum(batch.num_tokens for planned, batch in share if planned.weight)
        [tokens] = self.ranks.sums(counted)
        loss = torch.zeros((), device=self.state.parameters[0].device)
        for place, (planned, batch) in enumerate(share, 1):
            # Ranks exchange gradients with the last batch only.
            with self.ranks.last(self.network, place == len(share)):
                loss = loss + self._backward(planned, batch, total, tokens)
        self.ranks.mean(self.estimates)
        [loss_of_all] = self.ranks.sums(float(loss))
        norm = self.state.gradient_norm(self.trainer.clip_norm, self.trainer.clip_value)
        # With float16, the scaler skips updates whose gradients overflow.
        scaled = self.state.scaler.is_enabled() and math.isfinite(loss_of_all)
        if not scaled and not math.isfinite(float(norm) + loss_of_all):
            self._failures += 1
            return self._without_update(norm)
        self.state.step()
        self._tokens += int(tokens)
        self._loss += loss_of_all
        if self.trainer.on_nan != "rollback":
            self._failures = 0
        return norm

    def _backward(
        self, planned: PlannedBatch, batch: TrainingBatch, total: int, tokens: float
    ) -> Tensor:
        """Adds the gradient of one batch, per token of the update.

        Returns the loss, summed over tokens.
        """
        _seed(self.task.seed, self.progress.epoch, planned.number)
        device = self.state.parameters[0].device
        precision = AUTOCAST[self.trainer.precision]
        with torch.autocast(device.type, precision, enabled=precision is not None):
            loss = self.network(self.task.objective, batch.to(device), self.progress.update, total)
        # Gradients of several ranks are averaged, not summed.
        summed = loss.total * (planned.weight * self.ranks.count)
        self.state.scaler.scale(summed / tokens).backward()
        return loss.total.detach() * planned.weight

    def _without_update(self, norm: Tensor) -> Tensor | None:
        """Handles a NaN or infinite loss or gradient as `on_nan` states."""
        progress = self.progress
        policy = self.trainer.on_nan
        problem = f"the loss or its gradient is NaN or infinite (update {progress.update + 1:,})"
        if policy == "stop" or self._failures >= PATIENCE:
            raise UserError(f"{problem}: {self._remedy}")
        self.state.skip()
        if policy == "skip":
            log.warning("%s: update skipped", problem)
            progress.skipped += 1
            return torch.zeros_like(norm)
        log.warning("%s: back to the last saved state, with half the learning rate", problem)
        self.ranks.wait()  # until rank 0 has written it
        self.state.load(*self.store.load_last())
        self.progress.halvings = progress.halvings + 1
        self._reset_figures()
        return None

    def _report(self, plan: EpochPlan, norm: Tensor) -> None:
        """Calls the callbacks, unless all updates since the last report were skipped."""
        if not self._tokens:
            return
        update = Update(
            update=self.progress.update,
            total=plan.total_updates,
            epoch=plan.position(self.progress.batch),
            loss=self._loss / self._tokens,
            rate=self.state.rate,
            gradient_norm=float(norm),
            speed=self._tokens / (time.monotonic() - self._reported_at),
        )
        for callback in self.callbacks:
            callback.on_update(update)
        self._reset_figures()

    def _validation_of(self, weights: dict[str, Tensor]) -> Validation:
        """Validates some weights. Raises Stopped, after saving, if interrupted: it is repeated when
        resumed."""
        try:
            with self.state.using(weights):
                return self.task.validate(lambda: self.interruption.requested)
        except ValidationStopped:
            self.save()
            raise Stopped from None

    def _validate(self, epoch: float) -> None:
        """Validates, keeps the best weights, calls schedule and callbacks, and decides whether to
        stop."""
        progress = self.progress
        weights = self.state.weights()
        progress.validating = True
        validation = self._validation_of(weights)
        progress.validating = False
        score = validation.metrics[self.task.metric]
        loss = validation.metrics.get("loss", math.inf)
        if not math.isfinite(score) or math.isnan(loss):
            raise UserError(
                f"the validation {self.task.metric} or loss is not a number "
                f"(update {progress.update:,}): {self._remedy}"
            )
        # Of two equal scores, that with the smaller loss is better.
        is_tie = score == progress.best and loss < progress.best_loss
        best = self.task.better(score, progress.best) or is_tie
        progress.worse = 0 if best else progress.worse + 1
        self.state.schedule.observe(best)
        if best:
            progress.best_loss = loss
            self._keep_best(validation, weights)
        if self.trainer.average:
            self._snapshot(score, weights)
        for callback in self.callbacks:
            callback.on_validation(progress.update, epoch, validation, best)
        if self.trainer.patience and progress.worse >= self.trainer.patience:
            progress.finished = True
        self.save()
        self._reset_figures()

    def _snapshot(self, score: float, weights: dict[str, Tensor]) -> None:
        """Keeps the weights of the best validations."""
        snapshots = [*self.progress.snapshots, (self.progress.update, score)]
        while len(snapshots) > self.trainer.average:
            worst = snapshots[0]
            for snapshot in snapshots[1:]:
                if self.task.better(worst[1], snapshot[1]):
                    worst = snapshot
            snapshots.remove(worst)
        self.progress.snapshots = snapshots
        if self.ranks.first:
            updates = [update for update, _ in snapshots]
            self.store.save_snapshot(self.progress.update, weights, updates)

    def _keep_best(self, validation: Validation, weights: dict[str, Tensor], **facts: Any) -> None:
        """Saves the best weights so far, with further facts in the checkpoint."""
        self.progress.best = validation.metrics[self.task.metric]
        self.progress.best_update = self.progress.update
        if self.ranks.first:
            metrics = dict(validation.metrics)
            self.store.save_best(
                {"update": self.progress.update, "metrics": metrics, **facts}, weights
            )

    def try_average(self) -> None:
        """Averages the snapshots; the average becomes the best if it is better."""
        progress = self.progress
        updates = [update for update, _ in progress.snapshots]
        progress.averaged = len(updates) < 2
        if progress.averaged:
            return
        self.ranks.wait()  # until rank 0 has written them
        weights = self.store.average(updates)
        validation = self._validation_of(weights)
        progress.averaged = True
        name = self.task.metric
        score = validation.metrics[name]
        if not self.task.better(score, progress.best):
            log.info(
                "the average of the %s best checkpoints has %s %.2f, no better than the best one",
                len(updates),
                name,
                score,
            )
            return
        self._keep_best(validation, weights, averaged=updates)
        for callback in self.callbacks:
            callback.on_validation(progress.update, float(progress.epoch), validation, True)

    def save(self) -> None:
        """Saves everything needed to resume. Raises UserError, and saves nothing, if weights are
        NaN or infinite."""
        progress = self.progress
        if not self.state.sound():
            raise UserError(
                f"weights are NaN or infinite (update {progress.update:,}): {self._remedy}"
            )
        now = time.monotonic()
        progress.seconds += now - self._counted_from
        self._counted_from = now
        saved = self.state.save()
        if saved is not None:
            self.store.save_last(*saved)
        if progress.update != self._saved_update:
            self._saved_update = progress.update
            self._failures = 0
        self._saved_at = time.monotonic()

    @property
    def _remedy(self) -> str:
        """Advice for a NaN or infinite loss."""
        if not self._saved_update:
            return REMEDY
        return f"{REMEDY}. Update {self._saved_update:,} is saved, and resume= takes these too"


def _seed(seed: int, epoch: int, batch: int) -> None:
    """Seeds dropout and samples as a pure function of the batch: they depend neither on the number
    of ranks nor on a stop."""
    key = hashlib.blake2b(f"{seed} {epoch} {batch}".encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(key, "little", signed=True))
