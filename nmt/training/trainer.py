"""The training loop. It does not know the model: it gets a task, which has the network, the objective, batches and a
way to validate. Its whole state (state.py) can be saved after any update and resumed, bit for bit."""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.interfaces import Batches, TrainingBatch
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Count, Fraction, NonNegative, Positive, Size
from nmt.model.precision import Precision
from nmt.training.interruption import interruptible
from nmt.training.schedule import Schedule
from nmt.training.state import TrainingProgress, TrainingState
from nmt.training.task import Task

log = logging.getLogger(__name__)
OnNaN = Literal["stop", "skip", "rollback"]
REMEDY = "lower optimizer.lr or trainer.clip_norm, or use trainer.precision=float32"
PATIENCE = 10
"""Updates that may be left out one after another, and how often one state may be taken up again, before training stops."""


@dataclass(frozen=True)
class Update:
    """What is logged every few updates. loss: nats per token, with smoothing; speed: tokens per second (target tokens
    when translating, texts when classifying: whatever a batch's `num_tokens` counts)."""

    update: int
    total: int
    epoch: float
    loss: float
    rate: float
    gradient_norm: float
    speed: float


@runtime_checkable
class Observer(Protocol):
    """What is informed about the training: progress bar, metrics file, TensorBoard."""

    def on_update(self, update: Update) -> None: ...
    def on_validation(
        self, update: int, epoch: float, metrics: dict[str, float], best: bool
    ) -> None: ...


@runtime_checkable
class Store(Protocol):
    """Where checkpoints go. `state` is JSON, tensors by name."""

    def save_last(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None: ...
    def load_last(self) -> tuple[dict[str, Any], dict[str, Tensor]]: ...
    def save_best(self, state: dict[str, Any], weights: dict[str, Tensor]) -> None: ...
    def save_snapshot(
        self, update: int, weights: dict[str, Tensor], keep: Sequence[int]
    ) -> None: ...
    def average(self, updates: Sequence[int]) -> dict[str, Tensor]: ...


class Trainer:
    """How long and how to train.

    max_epochs; max_updates (0: no bound); stop_after: epochs after which training is saved and stopped, to be resumed
    later as if nothing had been (0: no); accumulate: batches per update; clip_norm: largest gradient norm (0: any);
    clip_value: largest value in the gradient (0: any); precision: autocast type of the products; validate_every: in
    epochs, or validate_every_updates: in updates (0: by epochs); patience: validations without improvement before
    stopping (0: never); ema: decay of an exponential moving average of the weights, which is then what is validated
    and kept as best (0: none); average: at the end, average the weights of this many best validations and keep them
    if they are better (0: no); save_every: minutes between saves of everything needed to resume; log_every: updates;
    keep: how many of the latest checkpoints to keep.

    on_nan: what happens when the loss or the gradient of an update is not a number. stop: an error, and the last good state
    stays saved; skip: the update is left out, and after PATIENCE of them in a row training stops; rollback: the last saved
    state is taken up again with half the learning rate. Weights that are not numbers are never saved.

    shard: of several processes, each keeps its share only of what the optimizer remembers and of the moving average.
    """

    def __init__(
        self,
        *,
        max_epochs: Size = 10,
        max_updates: Count = 0,
        stop_after: Count = 0,
        accumulate: Size = 1,
        clip_norm: NonNegative = 1.0,
        clip_value: NonNegative = 0.0,
        precision: Precision = "float32",
        validate_every: Positive = 1.0,
        validate_every_updates: Count = 0,
        patience: Count = 0,
        ema: Fraction = 0.0,
        average: Count = 0,
        save_every: NonNegative = 5.0,
        log_every: Size = 20,
        keep: Size = 1,
        on_nan: OnNaN = "stop",
        shard: bool = False,
    ) -> None:
        self.max_epochs, self.max_updates, self.accumulate = max_epochs, max_updates, accumulate
        self.stop_after = stop_after
        self.clip_norm, self.clip_value, self.precision, self.patience = (
            clip_norm,
            clip_value,
            precision,
            patience,
        )
        self.validate_every, self.validate_every_updates = validate_every, validate_every_updates
        self.ema, self.average = ema, average
        self.save_every, self.log_every = save_every, log_every
        self.keep, self.on_nan, self.shard = keep, on_nan, shard

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys of averaging and validation that change nothing."""
        average, updates, epochs, last = (
            run.value(f"trainer.{key}")
            for key in ("average", "validate_every_updates", "validate_every", "max_epochs")
        )
        reasons = {}
        if average == 1:
            reasons["trainer.average"] = "is the best model alone; give at least 2, or 0"
        if updates:
            reasons["trainer.validate_every"] = f"validation is every {updates} updates"
        elif average and average > 1 and (last or 10) <= (epochs or 1.0):
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
        observers: Sequence[Observer] = (),
        resume: tuple[dict[str, Any], dict[str, Tensor]] | None = None,
    ) -> TrainingProgress:
        """Trains the task's network to the end. Raises Stopped after saving if interrupted, UserError if the loss is no
        longer a number."""
        scale = self.precision == "float16"
        state = TrainingState(
            task.network,
            optimizer,
            schedule,
            ema=self.ema,
            scale=scale,
            ranks=task.ranks,
            shard=self.shard,
        )
        if resume is not None:
            state.load(*resume)
            state.progress.finished = (
                0 < self.patience <= state.progress.worse
            )  # max_epochs may be larger now
        loop = _Loop(self, task, state, store, observers)
        if resume is None:
            loop.save()  # from now on, the run can always be resumed
        task.network.train()
        with interruptible() as interrupted:
            while not state.progress.finished and state.progress.epoch < min(
                self.max_epochs, task.epochs
            ):
                if 0 < self.stop_after <= state.progress.epoch:
                    raise Stopped(planned=True)
                loop.epoch(task.batches(state.progress.epoch), interrupted)
                if state.progress.epoch == self.stop_after and not state.progress.finished:
                    loop.save()
            state.progress.finished = True
            [stop] = task.ranks.sums(len(interrupted))
            if self.average and not stop and not state.progress.averaged:
                loop.try_average()
            [stop] = task.ranks.sums(len(interrupted))
            loop.save()
            if stop:
                raise Stopped
        return state.progress


class _Loop:
    """One call of `Trainer.fit`: its parts, and the figures since the last report."""

    def __init__(
        self,
        trainer: Trainer,
        task: Task,
        state: TrainingState,
        store: Store,
        observers: Sequence[Observer],
    ) -> None:
        self.trainer, self.task, self.state, self.store, self.observers = (
            trainer,
            task,
            state,
            store,
            observers,
        )
        self.ranks, self.network = task.ranks, task.ranks.wrapped(task.network)
        self.estimates = task.network.estimates()
        self.device = state.parameters[0].device
        self.autocast = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[
            trainer.precision
        ]
        self.saved_at = self.counted_from = time.monotonic()
        self._unsound, self._saved = 0, state.progress.update
        self._reset()

    def _reset(self) -> None:
        self._tokens, self._loss, self._since = 0, 0.0, time.monotonic()

    def epoch(self, batches: Batches, interrupted: list[int]) -> None:
        """Trains the rest of an epoch. Raises Stopped if interrupted."""
        trainer, progress, together = (
            self.trainer,
            self.state.progress,
            self.trainer.accumulate * self.ranks.count,
        )
        per_epoch = math.ceil(len(batches) / together)
        last, whole = (
            min(trainer.max_epochs, self.task.epochs),
            per_epoch / min(1, self.task.epochs - progress.epoch),
        )
        before = progress.update - math.ceil(
            progress.batch / together
        )  # updates of the epochs before this one
        total = before + math.ceil((last - progress.epoch) * whole - 1e-9)
        if len(batches) < self.ranks.count and self.task.epochs - progress.epoch >= 1:
            raise UserError(
                f"an epoch has only {len(batches):,} batch{'es' * (len(batches) > 1)} for {self.ranks.count} processes: "
                "start fewer, or make batches smaller (batching.sentences)"
            )
        total = min(total, trainer.max_updates) if trainer.max_updates else total
        warmup = self.state.schedule.warmup
        if not progress.update and warmup >= total:
            log.warning(
                "schedule.warmup=%s: the training has %s updates and never reaches its rate",
                warmup,
                total,
            )
        groups = [
            self._mine(range(start, min(start + together, len(batches))))
            for start in range(progress.batch, len(batches), together)
        ]
        made, coming = batches.read([i for group in groups for i, _ in group]), iter(groups)
        while progress.batch < len(batches) and progress.update < total and not progress.finished:
            end = min(progress.batch + together, len(batches))
            group = [(i, next(made), counts) for i, counts in next(coming)]
            self.state.set_rate(total, progress.epoch + progress.batch / len(batches))
            norm = self._update(group, total)
            if norm is None:
                return  # rolled back: perhaps into another epoch
            progress.update, progress.batch, progress.averaged = progress.update + 1, end, False
            if progress.update % trainer.log_every == 0:
                self._report(total, progress.epoch + end / len(batches), norm)
            at_end = end == len(batches) and progress.epoch + 1 >= last
            due = self._due(progress.epoch, (progress.update - before) / per_epoch, 1 / per_epoch)
            if due or at_end or progress.update == total:
                self._validate(progress.epoch + end / len(batches))
            old = self.ranks.first and time.monotonic() - self.saved_at > 60 * trainer.save_every
            stop, save = self.ranks.sums(len(interrupted), old)
            if stop or save:
                self.save()
            if stop:
                raise Stopped
        if progress.update >= total:
            progress.finished = True
        if progress.batch >= len(batches):
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _due(self, epoch: int, done: float, step: float) -> bool:
        """Whether to validate after an update, the last `step` of an epoch of which so much is `done`."""
        if self.trainer.validate_every_updates:
            return self.state.progress.update % self.trainer.validate_every_updates == 0
        every = max(self.trainer.validate_every, step)
        count, before = ((epoch + place) / every + 1e-9 for place in (done, done - step))
        return math.floor(count) > math.floor(before)

    def _mine(self, batches: range) -> list[tuple[int, bool]]:
        """Which batches of an update this rank makes, and whether they count. As the others wait for its gradient, a rank
        for which none is left goes through one that does not count."""
        own = [(i, True) for i in self.ranks.share(batches)]
        return own + [(batches[0], False)] * (math.ceil(len(batches) / self.ranks.count) - len(own))

    def _update(self, group: list[tuple[int, TrainingBatch, bool]], total: int) -> Tensor | None:
        """One update (of `total`) from the gradient of the mean loss per token of all ranks' batches; the gradient's norm
        before clipping, or None if training was rolled back instead. `group`: the batches of this rank with their numbers
        in the epoch, and whether they count."""
        progress, here = self.state.progress, torch.zeros((), device=self.device)
        [tokens] = self.ranks.sums(sum(batch.num_tokens for _, batch, counts in group if counts))
        for place, (number, batch, counts) in enumerate(group, 1):
            _draw_for(self.task.seed, progress.epoch, number)
            with self.ranks.last(self.network, place == len(group)):
                with torch.autocast(
                    self.device.type, self.autocast, enabled=self.autocast is not None
                ):
                    loss = self.network(
                        self.task.objective, batch.to(self.device), progress.update, total
                    )
                summed = loss.total * (
                    counts * self.ranks.count
                )  # the gradients of several ranks are averaged
                self.state.scaler.scale(summed / tokens).backward()
            here = here + loss.total.detach() * counts
        self.ranks.mean(self.estimates)
        [found] = self.ranks.sums(float(here))
        norm = self.state.gradient_norm(self.trainer.clip_norm, self.trainer.clip_value)
        scaled = self.state.scaler.is_enabled() and math.isfinite(
            found
        )  # the scaler looks by itself
        if scaled or math.isfinite(float(norm) + found):
            self.state.step()
            self._tokens, self._loss = self._tokens + int(tokens), self._loss + found
            if self.trainer.on_nan != "rollback":
                self._unsound = 0
            return norm
        self._unsound += 1
        return self._without(norm)

    def _without(self, norm: Tensor) -> Tensor | None:
        """What is done instead of an update that is not a number."""
        progress, policy = self.state.progress, self.trainer.on_nan
        where = (
            f"the loss or its gradient is not a number any more (update {progress.update + 1:,})"
        )
        if policy == "stop" or self._unsound >= PATIENCE:
            raise UserError(f"{where}: {self._remedy}")
        if policy == "skip":
            log.warning("%s: left out", where)
            progress.skipped += 1
            self.state.skip()
            return torch.zeros_like(norm)
        log.warning("%s: back to the last saved state, with half the learning rate", where)
        halvings = progress.halvings + 1
        self.state.skip()
        self.ranks.wait()  # until it is written
        self.state.load(*self.store.load_last())
        self.state.progress.halvings = halvings
        self._reset()
        return None

    def _report(self, total: int, epoch: float, norm: Tensor) -> None:
        if not self._tokens:
            return  # nothing but updates that were left out
        loss, seconds = self._loss / self._tokens, time.monotonic() - self._since
        update = self.state.progress.update
        speed, rate = self._tokens / seconds, self.state.rate
        for observer in self.observers:
            observer.on_update(Update(update, total, epoch, loss, rate, float(norm), speed))
        self._reset()

    def _validate(self, epoch: float) -> None:
        """Validates, keeps the best weights, tells the schedule and the observers, decides whether to stop."""
        progress, weights = self.state.progress, self.state.weights()
        with self.state.using(weights):
            metrics = self.task.validate()
        score = metrics[self.task.metric]
        loss = metrics.get("loss", math.inf)
        if not math.isfinite(score) or math.isnan(loss):
            raise UserError(
                f"the validation {self.task.metric} or loss is not a number (update {progress.update:,}): {self._remedy}"
            )
        best = self.task.better(score, progress.best) or (
            score == progress.best and loss < progress.best_loss
        )
        progress.worse = 0 if best else progress.worse + 1
        self.state.schedule.observe(best)
        if best:
            progress.best, progress.best_loss, progress.best_update = score, loss, progress.update
            self._keep_best({"update": progress.update, "metrics": metrics}, weights)
        if self.trainer.average:
            self._snapshot(score, weights)
        for observer in self.observers:
            observer.on_validation(progress.update, epoch, metrics, best)
        if self.trainer.patience and progress.worse >= self.trainer.patience:
            progress.finished = True
        self.save()
        self._reset()

    def _snapshot(self, score: float, weights: dict[str, Tensor]) -> None:
        """Keeps the weights of the best validations."""
        kept = [*self.state.progress.snapshots, (self.state.progress.update, score)]
        while len(kept) > self.trainer.average:
            worst = kept[0]
            for snapshot in kept[1:]:
                worst = snapshot if self.task.better(worst[1], snapshot[1]) else worst
            kept.remove(worst)
        self.state.progress.snapshots = kept
        if self.ranks.first:
            self.store.save_snapshot(
                self.state.progress.update, weights, [update for update, _ in kept]
            )

    def _keep_best(self, state: dict[str, Any], weights: dict[str, Tensor]) -> None:
        if self.ranks.first:
            self.store.save_best(state, weights)

    def try_average(self) -> None:
        """Averages the snapshots; they become the best if they are better."""
        progress = self.state.progress
        progress.averaged = True
        if len(progress.snapshots) < 2:
            return
        updates = [update for update, _ in progress.snapshots]
        self.ranks.wait()  # until they are written
        weights = self.store.average(updates)
        with self.state.using(weights):
            metrics = self.task.validate()
        score, name = metrics[self.task.metric], self.task.metric
        if not self.task.better(score, progress.best):
            log.info("the mean of the %s best is no better: %s %.2f", len(updates), name, score)
            return
        progress.best, progress.best_update = score, progress.update
        self._keep_best(
            {"update": progress.update, "metrics": metrics, "averaged": updates}, weights
        )
        for observer in self.observers:
            observer.on_validation(progress.update, float(progress.epoch), metrics, True)

    def save(self) -> None:
        """Everything needed to go on from here. Raises UserError, and saves nothing, if weights are not numbers."""
        if not self.state.sound():
            raise UserError(
                f"weights are not numbers any more (update {self.state.progress.update:,}): {self._remedy}"
            )
        now = time.monotonic()
        self.state.progress.seconds += now - self.counted_from
        self.counted_from = now
        if (state := self.state.save()) is not None:
            self.store.save_last(*state)
        if self.state.progress.update != self._saved:
            self._saved, self._unsound = self.state.progress.update, 0
        self.saved_at = time.monotonic()

    @property
    def _remedy(self) -> str:
        """What to do against numbers that are none."""
        return (
            f"{REMEDY}. Update {self._saved:,} is saved, and resume= takes these too"
            if self._saved
            else REMEDY
        )


def _draw_for(seed: int, epoch: int, batch: int) -> None:
    """Random numbers of dropout and samples, as a pure function of the batch: whatever number of ranks share the work, and
    wherever a run is resumed."""
    key = hashlib.blake2b(f"{seed} {epoch} {batch}".encode(), digest_size=8).digest()
    torch.manual_seed(int.from_bytes(key, "little", signed=True))
