"""Everything that changes while a model is trained: weights, their moving average, optimizer, schedule and the position in
the data, from which random numbers follow. It can be split into JSON and tensors, and restored from them, bit for bit."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nmt.foundation.errors import UserError
from nmt.foundation.ranks import ALONE, Ranks
from nmt.training.schedule import Schedule


@dataclass
class TrainingProgress:
    """All of the state that is neither tensor nor optimizer."""

    update: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    best: float | None = None
    best_loss: float = math.inf
    best_update: int = 0
    worse: int = 0  # validations in a row without improvement
    finished: bool = False
    seconds: float = 0.0
    snapshots: list[tuple[int, float]] = field(
        default_factory=list
    )  # (update, score) of the kept validations
    averaged: bool = False  # whether the snapshots have been averaged
    halvings: int = 0  # of the learning rate, by rollbacks
    skipped: int = 0  # updates that were left out because their gradient was not a number

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> TrainingProgress:
        """What `asdict` took apart. Raises KeyError, TypeError or ValueError if it is something else."""
        kinds: dict[str, Any] = {
            "best": (float, int, type(None)),
            "best_loss": (float, int),
            "seconds": (float, int),
        }
        kinds |= {"finished": (bool,), "averaged": (bool,), "snapshots": (list, tuple)}
        for name, value in saved.items():
            if type(value) not in kinds.get(name, (int,)):  # a Boolean is no number
                raise TypeError(f"{name} is {type(value).__name__}")
        found = cls(**saved)
        found.snapshots = [(int(update), float(score)) for update, score in found.snapshots]
        if min(found.update, found.epoch, found.batch, found.best_update, found.worse) < 0:
            raise ValueError("a negative count")
        return found


class TrainingState:
    """What an update changes, and how it is saved. `ema`: decay of the moving average (0: none); `scale`: scale the
    loss against underflow (float16); `shard`: of the moving average and of what the optimizer remembers, each of the
    `ranks` holds its share only (the optimizer is `Ranks.sharded`)."""

    def __init__(
        self,
        network: nn.Module,
        optimizer: Any,  # torch.optim.Optimizer, or sharded
        schedule: Schedule,
        *,
        ema: float,
        scale: bool,
        ranks: Ranks = ALONE,
        shard: bool = False,
    ) -> None:
        self.network, self.optimizer, self.schedule, self.ema = network, optimizer, schedule, ema
        self.ranks, self.sharing = ranks, ranks if shard else ALONE
        self.progress = TrainingProgress()
        self.names, self.parameters = zip(*network.named_parameters(), strict=True)
        self._averaged = self.sharing.share(self.parameters) if ema else ()
        self._average = [p.detach().clone() for p in self._averaged]
        self.scaler = torch.amp.GradScaler(self.parameters[0].device.type, enabled=scale)
        self.optimized = [p for group in optimizer.param_groups for p in group["params"]]
        self.base_rates = [group["lr"] for group in optimizer.param_groups]

    @property
    def rate(self) -> float:
        """The current learning rate (of the first group)."""
        return self.optimizer.param_groups[0]["lr"]

    def set_rate(self, total: int, epoch: float) -> None:
        """The learning rates of the next update, by the schedule."""
        factor = (
            self.schedule.factor(self.progress.update, total, epoch) * 0.5**self.progress.halvings
        )
        for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor

    def gradient_norm(self, clip_norm: float, clip_value: float) -> Tensor:
        """The norm of the gradient before its norm is clipped; single values are clipped before that, the norm then."""
        self.scaler.unscale_(self.optimizer)
        if clip_value:
            nn.utils.clip_grad_value_(self.parameters, clip_value)
        return nn.utils.clip_grad_norm_(self.parameters, clip_norm or math.inf)

    def skip(self) -> None:
        """Leaves an update out."""
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """One optimizer step, after `gradient_norm`."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self._averaged:
            decay = min(self.ema, (1 + self.progress.update) / (10 + self.progress.update))
            with torch.no_grad():
                torch._foreach_lerp_(self._average, list(self._averaged), 1 - decay)

    def sound(self) -> bool:
        """Whether all weights are numbers."""
        with torch.no_grad():
            wrong = sum(
                not bool(torch.isfinite(p).all()) for p in (*self.parameters, *self._average)
            )
        return self.ranks.sums(wrong) == [0]

    def weights(self) -> dict[str, Tensor]:
        """What is validated and kept: the moving average if there is one. All ranks call it."""
        kept = (
            self.sharing.collected(self._average, self.parameters) if self.ema else self.parameters
        )
        return dict(zip(self.names, kept, strict=True))

    @contextlib.contextmanager
    def using(self, weights: dict[str, Tensor]) -> Iterator[None]:
        """The network in evaluation mode with other weights for a while."""
        own = [p.data for p in self.parameters]
        for name, parameter in zip(self.names, self.parameters, strict=True):
            parameter.data = weights[name].data
        self.network.eval()
        try:
            yield
        finally:
            for parameter, data in zip(self.parameters, own, strict=True):
                parameter.data = data
            self.network.train()

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state as (JSON, tensors), of the first rank; all ranks call it."""
        tensors = {f"model/{n}": p for n, p in zip(self.names, self.parameters, strict=True)}
        tensors |= {f"ema/{n}": p for n, p in self.weights().items()} if self.ema else {}
        if self.sharing.several:
            self.optimizer.consolidate_state_dict()
        if not self.ranks.first:
            return None
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
            "schedule": self.schedule.state(),
            "optimizer": {"groups": optimizer["param_groups"], "plain": plain},
            "scaler": self.scaler.state_dict(),
        }
        return state, tensors

    def load(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """The counterpart of `save`. Learning rate, momentum and the like are those that the optimizer was made with.

        Raises UserError if the state is not one of this network and optimizer."""
        try:
            self._load(state, tensors)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise UserError(
                f"the checkpoint's state cannot be used ({error!r}); it is damaged"
            ) from error

    def _load(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.progress = TrainingProgress.of(state["progress"])
        if not isinstance(state["schedule"], dict):
            raise TypeError(f"schedule: {state['schedule']!r}")
        self.schedule.load(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])
        held = [(f"model/{n}", p) for n, p in zip(self.names, self.parameters, strict=True)]
        held += [
            (f"ema/{n}", p)
            for n, p in zip(self.sharing.share(self.names), self._average, strict=False)
        ]
        with torch.no_grad():
            for name, parameter in held:
                _expect(name, tensors[name], parameter)
                parameter.copy_(tensors[name])
        values: dict[int, dict[str, Any]] = {
            int(i): dict(v) for i, v in state["optimizer"]["plain"].items()
        }
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                _, index, key = name.split("/")
                _expect(name, tensor, _kept(key, self.optimized[int(index)]))
                values.setdefault(int(index), {})[key] = tensor
        chosen = [
            {k: v for k, v in group.items() if k != "params"}
            for group in self.optimizer.param_groups
        ]
        self.optimizer.load_state_dict(
            {"state": values, "param_groups": state["optimizer"]["groups"]}
        )
        for group, now in zip(self.optimizer.param_groups, chosen, strict=True):
            group.update(now)  # the configuration's, which may have changed since


def _kept(key: str, parameter: Tensor) -> Tensor:
    """A tensor of the shape that an optimizer keeps for a parameter under a name."""
    if key in ("step", "eta", "mu", "mu_product"):
        return parameter.new_empty(())
    if key == "row_var":
        return parameter[..., :1]
    return parameter[..., :1, :] if key == "col_var" else parameter


def _expect(name: str, found: Tensor, like: Tensor) -> None:
    """Raises ValueError unless a tensor of a checkpoint can stand for another: kernels trust sizes that they are given."""
    if (
        found.shape != like.shape
        or not found.is_floating_point()
        or not bool(torch.isfinite(found).all())
    ):
        raise ValueError(
            f"{name} is {tuple(found.shape)} {found.dtype}, or holds what is no number"
        )
