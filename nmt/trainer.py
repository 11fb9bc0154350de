"""The training loop. It knows no model: it gets an objective, an optimizer, batches and a function that validates, and its
whole state can be saved after any update and taken up again, bit for bit."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.interfaces import Batch, Loss
from nmt.ranges import Count, Fraction, NonNegative, Positive, Size
from nmt.schedule import Schedule

Precision = Literal["float32", "bfloat16", "float16"]


class Stopped(Exception):
    """Ctrl-C or SIGTERM: everything is saved."""


@dataclass(frozen=True)
class Update:
    """One logged stretch of updates. loss: nats per token, with smoothing; speed: target tokens per second."""

    update: int
    total: int
    epoch: float
    loss: float
    rate: float
    gradient_norm: float
    speed: float


@runtime_checkable
class Batches(Protocol):
    """The batches of one epoch, by index."""

    def __len__(self) -> int: ...
    def __getitem__(self, i: int, /) -> Batch: ...


@runtime_checkable
class Observer(Protocol):
    """Whoever watches: progress bar, metrics file, TensorBoard."""

    def on_update(self, update: Update) -> None: ...
    def on_validation(self, update: int, epoch: float, metrics: dict[str, float], best: bool) -> None: ...


@runtime_checkable
class Store(Protocol):
    """Where checkpoints go. `state` is JSON, tensors by name."""

    def save_last(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None: ...
    def save_best(self, state: dict[str, Any], weights: dict[str, Tensor]) -> None: ...
    def save_snapshot(self, update: int, weights: dict[str, Tensor], keep: Sequence[int]) -> None: ...
    def average(self, updates: Sequence[int]) -> dict[str, Tensor]: ...


@dataclass
class Progress:
    """All of the training's state that is not a tensor."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    best: float | None = None
    best_update: int = 0
    worse: int = 0  # validations in a row without improvement
    finished: bool = False
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)
    snapshots: list[tuple[int, float]] = field(default_factory=list)
    schedule: dict[str, float] = field(default_factory=dict)


class Trainer:
    """How long and how to train.

    max_epochs; max_updates (0: no bound); accumulate: batches per update; clip_norm: largest gradient norm (0: any);
    precision: autocast type of the products; validate_every: in epochs; patience: validations without improvement
    before stopping (0: never); ema: decay of an exponential moving average of the weights, which is then what is
    validated and kept as best (0: none); average: at the end, average the weights of this many best validations and
    keep them if they are better (0: no); save_every: minutes between saves of everything needed to resume;
    log_every: updates.
    """

    def __init__(
        self,
        *,
        max_epochs: Size = 10,
        max_updates: Count = 0,
        accumulate: Size = 1,
        clip_norm: NonNegative = 1.0,
        precision: Precision = "float32",
        validate_every: Positive = 1.0,
        patience: Count = 0,
        ema: Fraction = 0.0,
        average: Count = 0,
        save_every: NonNegative = 5.0,
        log_every: Size = 20,
    ) -> None:
        self.max_epochs, self.max_updates, self.accumulate, self.clip_norm = (
            max_epochs,
            max_updates,
            accumulate,
            clip_norm,
        )
        self.precision, self.validate_every, self.patience = precision, validate_every, patience
        self.ema, self.average = ema, average
        self.save_every, self.log_every = save_every, log_every

    def fit(
        self,
        *,
        model: nn.Module,
        objective: Callable[[Any, Batch, int], Loss],
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        batches: Callable[[int], Batches],
        validate: Callable[[], dict[str, float]],
        metric: str,
        better: Callable[[float, float | None], bool],
        observers: Sequence[Observer],
        store: Store,
        resume: tuple[dict[str, Any], dict[str, Tensor]] | None = None,
    ) -> Progress:
        """Trains to the end. `batches(epoch)` gives an epoch's batches, by index; `metric` names the entry of
        `validate()` that chooses the best weights. Raises Stopped after saving if interrupted, UserError if the loss
        is no longer a number."""
        loop = _Loop(self, model, optimizer, schedule, store)
        if resume is not None:
            loop.load(*resume)
        progress, device = loop.progress, next(model.parameters()).device
        rates = [group["lr"] for group in optimizer.param_groups]
        rates = loop.base_rates or rates
        loop.base_rates = rates
        autocast = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[self.precision]
        model.train()
        with _interruptible() as interrupted:
            while not progress.finished and progress.epoch < self.max_epochs:
                epoch_batches = batches(progress.epoch)
                per_epoch = math.ceil(len(epoch_batches) / self.accumulate)
                total = self.max_epochs * per_epoch
                total = min(total, self.max_updates) if self.max_updates else total
                between = max(1, round(self.validate_every * per_epoch))
                while progress.batch < len(epoch_batches) and progress.update < total:
                    group = [epoch_batches[i] for i in _span(progress.batch, self.accumulate, len(epoch_batches))]
                    passed = progress.epoch + progress.batch / len(epoch_batches)
                    factor = schedule.factor(progress.update, total, passed)
                    for settings, rate in zip(optimizer.param_groups, rates, strict=True):
                        settings["lr"] = rate * factor
                    tokens, loss = sum(b.num_tokens for b in group), torch.zeros((), device=device)
                    for batch in group:
                        with torch.autocast(device.type, autocast, enabled=autocast is not None):
                            part = objective(model, batch.to(device), progress.update)
                        loop.scaler.scale(part.total / tokens).backward()
                        loss += part.total.detach()
                    norm = loop.step(self.clip_norm)
                    progress.update += 1
                    progress.batch += len(group)
                    loop.count(tokens, loss)
                    if progress.update % self.log_every == 0:
                        logged = loop.report(total, len(epoch_batches), rates[0] * factor, norm)
                        for observer in observers:
                            observer.on_update(logged)
                    last = progress.batch == len(epoch_batches) and progress.epoch + 1 == self.max_epochs
                    if progress.update % between == 0 or progress.update == total or last:
                        loop.validated(validate, metric, better, observers, len(epoch_batches), self.patience)
                    if interrupted:
                        loop.save()
                        raise Stopped
                    if time.monotonic() - loop.saved_at > 60 * self.save_every:
                        loop.save()
                    if progress.finished:
                        break
                if progress.batch >= len(epoch_batches):
                    progress.epoch, progress.batch = progress.epoch + 1, 0
                if self.max_updates and progress.update >= self.max_updates:
                    break
            progress.finished = True
            if self.average and len(progress.snapshots) > 1:
                loop.try_average(validate, metric, better, observers)
            loop.save()
        return progress


class _Loop:
    """The mutable side of `Trainer.fit`: what is counted, saved and loaded."""

    def __init__(
        self, trainer: Trainer, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: Schedule, store: Store
    ) -> None:
        self.trainer, self.model, self.optimizer, self.schedule, self.store = trainer, model, optimizer, schedule, store
        self.progress = Progress()
        self.base_rates: list[float] = []
        self.names, self.parameters = zip(*model.named_parameters(), strict=True)
        self.average = [p.detach().clone() for p in self.parameters] if trainer.ema else []
        self.scaler = torch.amp.GradScaler(self.parameters[0].device.type, enabled=trainer.precision == "float16")
        self.saved_at = self.started = time.monotonic()
        self._reset()

    def _reset(self) -> None:
        self._tokens, self._since = 0, time.monotonic()
        self._loss: Tensor | None = None

    def step(self, clip_norm: float) -> Tensor:
        """One optimizer step; the gradient's norm before clipping."""
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.parameters, clip_norm or math.inf)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average:
            decay = min(self.trainer.ema, (1 + self.progress.update) / (10 + self.progress.update))
            with torch.no_grad():
                torch._foreach_lerp_(self.average, list(self.parameters), 1 - decay)
        return norm

    def count(self, tokens: int, loss: Tensor) -> None:
        self._tokens += tokens
        self._loss = loss if self._loss is None else self._loss + loss

    def report(self, total: int, batches: int, rate: float, norm: Tensor) -> Update:
        assert self._loss is not None
        loss, seconds = float(self._loss) / self._tokens, time.monotonic() - self._since
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is not a number any more (update {self.progress.update:,}): lower optimizer.lr, lower "
                "trainer.clip_norm or use trainer.precision=float32"
            )
        update = Update(
            update=self.progress.update,
            total=total,
            epoch=self.progress.epoch + self.progress.batch / batches,
            loss=loss,
            rate=rate,
            gradient_norm=float(norm),
            speed=self._tokens / seconds,
        )
        self._reset()
        return update

    def weights(self) -> dict[str, Tensor]:
        """What is validated and kept: the moving average if there is one."""
        return dict(zip(self.names, self.average or self.parameters, strict=True))

    @contextlib.contextmanager
    def _using(self, weights: dict[str, Tensor]) -> Iterator[None]:
        """The model with other weights for a while."""
        own = [p.data for p in self.parameters]
        for name, parameter in zip(self.names, self.parameters, strict=True):
            parameter.data = weights[name].data
        self.model.eval()
        try:
            yield
        finally:
            for parameter, data in zip(self.parameters, own, strict=True):
                parameter.data = data
            self.model.train()

    def validated(
        self,
        validate: Callable[[], dict[str, float]],
        metric: str,
        better: Callable[[float, float | None], bool],
        observers: Sequence[Observer],
        batches: int,
        patience: int,
    ) -> None:
        """Validates, keeps the best weights, tells the schedule and the observers, decides whether to stop."""
        progress, weights = self.progress, self.weights()
        with self._using(weights):
            metrics = validate()
        best = better(metrics[metric], progress.best)
        progress.worse = 0 if best else progress.worse + 1
        epoch = progress.epoch + progress.batch / batches
        progress.history.append({"update": progress.update, "epoch": epoch, **metrics})
        self.schedule.observe(best)
        if best:
            progress.best, progress.best_update = metrics[metric], progress.update
            self.store.save_best({"update": progress.update, "metrics": metrics}, weights)
        if self.trainer.average:
            self._snapshot(metrics[metric], better, weights)
        for observer in observers:
            observer.on_validation(progress.update, epoch, metrics, best)
        if patience and progress.worse >= patience:
            progress.finished = True
        self.save()
        self._reset()

    def _snapshot(
        self, score: float, better: Callable[[float, float | None], bool], weights: dict[str, Tensor]
    ) -> None:
        kept = [*self.progress.snapshots, (self.progress.update, score)]
        if len(kept) > self.trainer.average:
            worst = kept[0]
            for snapshot in kept[1:]:
                worst = snapshot if better(worst[1], snapshot[1]) else worst
            kept.remove(worst)
        self.progress.snapshots = kept
        self.store.save_snapshot(self.progress.update, weights, [update for update, _ in kept])

    def try_average(
        self,
        validate: Callable[[], dict[str, float]],
        metric: str,
        better: Callable[[float, float | None], bool],
        observers: Sequence[Observer],
    ) -> None:
        """Averages the snapshots; they become the best if they are better."""
        progress = self.progress
        weights = self.store.average([update for update, _ in progress.snapshots])
        with self._using(weights):
            metrics = validate()
        best = better(metrics[metric], progress.best)
        if best:
            progress.best, progress.best_update = metrics[metric], progress.update
            state = {"update": progress.update, "metrics": metrics, "averaged": [u for u, _ in progress.snapshots]}
            self.store.save_best(state, weights)
        for observer in observers:
            observer.on_validation(progress.update, float(progress.epoch), metrics, best)

    def save(self) -> None:
        """Everything needed to go on from here."""
        self.progress.schedule = self.schedule.state()
        now = time.monotonic()
        self.progress.seconds, self.started = self.progress.seconds + now - self.started, now
        tensors = {f"model/{n}": p for n, p in zip(self.names, self.parameters, strict=True)}
        tensors |= {f"ema/{n}": p for n, p in zip(self.names, self.average, strict=False)}
        tensors["rng/cpu"] = torch.get_rng_state()
        if self.parameters[0].is_cuda:
            tensors["rng/cuda"] = torch.cuda.get_rng_state(self.parameters[0].device)
        optimizer = self.optimizer.state_dict()
        plain: dict[str, Any] = {}
        for index, values in optimizer["state"].items():
            for name, value in values.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer/{index}/{name}"] = value
                else:
                    plain.setdefault(str(index), {})[name] = value
        state = {
            "progress": asdict(self.progress),
            "optimizer": {"groups": optimizer["param_groups"], "plain": plain},
            "rates": self.base_rates,
            "scaler": self.scaler.state_dict(),
        }
        self.store.save_last(state, tensors)
        self.saved_at = time.monotonic()

    def load(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """The counterpart of `save`."""
        self.progress = Progress(**state["progress"])
        self.progress.snapshots = [(int(u), float(s)) for u, s in self.progress.snapshots]
        self.schedule.load(self.progress.schedule)
        self.base_rates = state["rates"]
        self.scaler.load_state_dict(state["scaler"])
        device = self.parameters[0].device
        with torch.no_grad():
            for name, parameter in zip(self.names, self.parameters, strict=True):
                parameter.copy_(tensors[f"model/{name}"])
            for name, average in zip(self.names, self.average, strict=False):
                average.copy_(tensors[f"ema/{name}"])
        values: dict[int, dict[str, Any]] = {int(i): dict(v) for i, v in state["optimizer"]["plain"].items()}
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                _, index, key = name.split("/")
                values.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({"state": values, "param_groups": state["optimizer"]["groups"]})
        torch.set_rng_state(tensors["rng/cpu"].cpu())
        if "rng/cuda" in tensors and device.type == "cuda":
            torch.cuda.set_rng_state(tensors["rng/cuda"].cpu(), device)


def _span(start: int, count: int, end: int) -> range:
    return range(start, min(start + count, end))


@contextlib.contextmanager
def _interruptible() -> Iterator[list[int]]:
    """A list that gets an entry when Ctrl-C or SIGTERM arrives; a second one interrupts at once."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    try:
        previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever started us handles signals
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
