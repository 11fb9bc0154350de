"""Everything that changes while a model is trained.

Weights, their moving average, optimizer, schedule and the position in the data, from which random
numbers follow. It can be split into JSON and tensors, and restored from them, bit for bit.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
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
    batch: int = 0
    """Batches of this epoch that are done."""
    best: float | None = None
    best_loss: float = math.inf
    best_update: int = 0
    worse: int = 0
    """Validations in a row without improvement."""
    finished: bool = False
    validating: bool = False
    """Whether a validation was interrupted and has to be repeated."""
    seconds: float = 0.0
    snapshots: list[tuple[int, float]] = field(default_factory=list)
    """Update and score of each validation whose weights are kept."""
    averaged: bool = False
    """Whether the snapshots have been averaged."""
    halvings: int = 0
    """Halvings of the learning rate by rollbacks."""
    skipped: int = 0
    """Updates that were skipped because their gradient was NaN or infinite."""

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> "TrainingProgress":
        """The progress that `asdict` made plain. Raises KeyError, TypeError or ValueError if it is
        damaged."""
        for name, value in saved.items():
            if type(value) not in KINDS.get(name, (int,)):  # isinstance takes a Boolean for an int
                raise TypeError(f"{name} is {type(value).__name__}")
        progress = cls(**saved)
        progress.snapshots = [(int(update), float(score)) for update, score in progress.snapshots]
        counts = (progress.update, progress.epoch, progress.batch, progress.best_update)
        if min(*counts, progress.worse) < 0:
            raise ValueError("a negative count")
        return progress


KINDS: Mapping[str, tuple[type, ...]] = {
    "best": (float, int, type(None)),
    "best_loss": (float, int),
    "seconds": (float, int),
    "finished": (bool,),
    "validating": (bool,),
    "averaged": (bool,),
    "snapshots": (list, tuple),
}
"""Types of the fields of a saved progress; all others are whole numbers."""


class TrainingState:
    """Everything that an update changes.

    network: the network to train.
    optimizer: one of torch.optim, or sharded (`Ranks.sharded`).
    schedule: schedule of the learning rate.
    ema: decay of the moving average of the weights; 0: no average.
    scale: whether the loss is scaled against underflow (float16).
    ranks: the processes that train together.
    shard: whether each rank holds only its share of the moving average and of the optimizer's
    state.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: Any,
        schedule: Schedule,
        *,
        ema: float,
        scale: bool,
        ranks: Ranks = ALONE,
        shard: bool = False,
    ) -> None:
        self.network = network
        self.optimizer = optimizer
        self.schedule = schedule
        self.ema = ema
        self.ranks = ranks
        self.sharing = ranks if shard else ALONE
        self.progress = TrainingProgress()
        self.names, self.parameters = zip(*network.named_parameters(), strict=True)
        # This rank's share of the parameters that have a moving average.
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
        """Sets the learning rates of the next update.

        total: updates of the training
        epoch: epochs that are done
        """
        factor = self.schedule.factor(self.progress.update, total, epoch)
        factor *= 0.5**self.progress.halvings
        for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor

    def gradient_norm(self, clip_norm: float, clip_value: float) -> Tensor:
        """Clips the values of the gradient, then its norm.

        clip_norm: largest norm; 0: no limit
        clip_value: largest absolute value; 0: no limit

        Returns the norm between the two.
        """
        self.scaler.unscale_(self.optimizer)
        if clip_value:
            nn.utils.clip_grad_value_(self.parameters, clip_value)
        gradient = [p.grad for p in self.parameters if p.grad is not None]
        norm = nn.utils.get_total_norm(gradient)
        # Without this condition every gradient would be multiplied by 1, a tenth of the update's
        # memory traffic.
        if clip_norm and not norm + 1e-6 <= clip_norm:
            nn.utils.clip_grads_with_norm_(self.parameters, clip_norm, norm)
        return norm

    def skip(self) -> None:
        """Skips an update."""
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self) -> None:
        """One optimizer step, after `gradient_norm`."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self._averaged:
            # A smaller decay at first, so that the random initial weights are soon forgotten.
            decay = min(self.ema, (1 + self.progress.update) / (10 + self.progress.update))
            with torch.no_grad():
                torch._foreach_lerp_(self._average, list(self._averaged), 1 - decay)

    def sound(self) -> bool:
        """Whether all weights of all ranks are finite."""
        weights = (*self.parameters, *self._average)
        with torch.no_grad():
            damaged = not all(bool(torch.isfinite(tensor).all()) for tensor in weights)
        return not self.ranks.any(damaged)

    def weights(self) -> dict[str, Tensor]:
        """The weights to validate and keep: the moving average if there is one. All ranks call
        it."""
        if not self.ema:
            return self._named(self.parameters)
        return self._named(self.sharing.collected(self._average, self.parameters))

    def _named(self, tensors: Sequence[Tensor], prefix: str = "") -> dict[str, Tensor]:
        """Tensors, one for each parameter, by the names of the parameters."""
        return {prefix + name: tensor for name, tensor in zip(self.names, tensors, strict=True)}

    @contextlib.contextmanager
    def using(self, weights: dict[str, Tensor]) -> Iterator[None]:
        """The network in evaluation mode with other weights for a while."""
        # Only the storage is exchanged: the optimizer keeps its references to the parameters.
        trained = [p.data for p in self.parameters]
        for name, parameter in zip(self.names, self.parameters, strict=True):
            parameter.data = weights[name].data
        self.network.eval()
        try:
            yield
        finally:
            for parameter, data in zip(self.parameters, trained, strict=True):
                parameter.data = data
            self.network.train()

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The state as (JSON, tensors), of the first rank; all ranks call it."""
        tensors = self._named(self.parameters, "model/")
        if self.ema:
            average = self.weights()
            tensors |= {f"ema/{name}": tensor for name, tensor in average.items()}
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
        """The counterpart of `save`.

        Learning rate, momentum and the like are those that the optimizer was made with. Raises
        UserError if the state is not one of this network and optimizer.
        """
        try:
            self.progress = TrainingProgress.of(state["progress"])
            self.schedule.load({**state["schedule"]})  # raises TypeError for a list
            self.scaler.load_state_dict(state["scaler"])
            self._load_weights(tensors)
            self._load_optimizer(state["optimizer"], tensors)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise UserError(
                f"the checkpoint's state cannot be used ({error!r}); it is damaged"
            ) from error

    def _load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        weights = self._named(self.parameters, "model/")
        averaged_names = self.sharing.share(self.names)
        # Without a moving average, there are names only.
        weights |= {f"ema/{n}": p for n, p in zip(averaged_names, self._average, strict=False)}
        with torch.no_grad():
            for name, parameter in weights.items():
                _expect(name, tensors[name], parameter)
                parameter.copy_(tensors[name])

    def _load_optimizer(self, state: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        values = {int(index): dict(plain) for index, plain in state["plain"].items()}
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                index, key = name.split("/")[1:]
                _expect(name, tensor, _optimizer_tensor(key, self.optimized[int(index)]))
                values.setdefault(int(index), {})[key] = tensor
        configured = [
            {key: value for key, value in group.items() if key != "params"}
            for group in self.optimizer.param_groups
        ]
        self.optimizer.load_state_dict({"state": values, "param_groups": state["groups"]})
        for group, settings in zip(self.optimizer.param_groups, configured, strict=True):
            group.update(settings)  # they may have changed since


def _optimizer_tensor(key: str, parameter: Tensor) -> Tensor:
    """A tensor of the shape that an optimizer stores under a key for a parameter."""
    if key in ("step", "eta", "mu", "mu_product"):
        return parameter.new_empty(())
    # Row and column of Adafactor's factored second moments.
    if key == "row_var":
        return parameter[..., :1]
    return parameter[..., :1, :] if key == "col_var" else parameter


def _expect(name: str, tensor: Tensor, like: Tensor) -> None:
    """Checks a tensor of a checkpoint, because kernels trust sizes.

    Raises ValueError unless it has the shape of another tensor and is finite.
    """
    fits = tensor.shape == like.shape and tensor.is_floating_point()
    if not fits or not bool(torch.isfinite(tensor).all()):
        raise ValueError(
            f"{name} is {tuple(tensor.shape)} {tensor.dtype}, or contains NaN or infinite values"
        )
