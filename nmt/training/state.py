"""Training state: weights, moving average of the weights, optimizer, schedule and position in the
data.

The state can be saved as JSON and tensors, and restored bit for bit. Random numbers depend only on
the seed and the position in the data.
"""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from nmt.foundation.errors import UserError
from nmt.foundation.parameter_types import fits
from nmt.foundation.ranks import ALONE, Ranks
from nmt.training.schedule import Schedule


@dataclass
class TrainingProgress:
    """Progress of a training run: the training state without tensors and optimizer.

    update: number of updates so far
    epoch: number of finished epochs
    best: best validation score so far; None before the first validation
    best_loss: loss of the validation with the best score
    best_update: number of updates before the validation with the best score
    finished: whether the training has ended
    seconds: training time so far, in seconds
    """

    update: int = 0
    epoch: int = 0
    batch: int = 0
    """Number of finished batches of the current epoch."""
    best: float | None = None
    best_loss: float = math.inf
    best_update: int = 0
    worse: int = 0
    """Current number of consecutive validations without improvement, compared with `patience`."""
    validated: int = 0
    """Number of updates before the last validation."""
    finished: bool = False
    validating: bool = False
    """Whether a validation has begun but not ended, so that a resumed run must repeat it."""
    seconds: float = 0.0
    snapshots: list[tuple[int, float]] = field(default_factory=list)
    """Update number and validation score of each weight snapshot that is kept for averaging."""
    averaged: bool = False
    """Whether the snapshots of weights have been averaged, or are too few for an average."""
    halvings: int = 0
    """Number of times that rollbacks have halved the learning rate."""
    skipped: int = 0
    """Number of updates so far that were skipped because of a NaN or infinite gradient."""

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> "TrainingProgress":
        """Restores the progress from a saved mapping, the result of `dataclasses.asdict`. Raises
        KeyError, TypeError or ValueError if the mapping is damaged."""
        hints = get_type_hints(cls)
        for name, value in saved.items():
            if not fits(value, hints[name]):
                raise TypeError(f"{name} is {type(value).__name__}")
        progress = cls(**saved)
        progress.snapshots = [(int(update), float(score)) for update, score in progress.snapshots]
        counts = (progress.update, progress.epoch, progress.batch, progress.best_update)
        if min(*counts, progress.worse) < 0:
            raise ValueError("the training state contains a negative number of updates or epochs")
        return progress


RMSPROP_BUFFERS = {"momentum": "momentum_buffer", "centered": "grad_avg"}
"""Maps settings of torch.optim.RMSprop to the state entries that they need."""


class TrainingState:
    """Training state: everything that an update changes.

    network: network to train
    optimizer: optimizer of torch.optim, or a sharded optimizer (`Ranks.sharded`)
    schedule: learning-rate schedule
    ema: decay of the moving average of the weights; 0 disables the average
    scale: whether the loss is scaled to avoid underflow (float16)
    ranks: processes (ranks) that train together
    shard: whether the moving average and the optimizer's state are divided among the ranks
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
        self.keeps_gradients = False
        """Whether gradients keep their memory addresses, as CUDA graphs require."""
        self.names, self.parameters = zip(*network.named_parameters(), strict=True)
        self._check_buffers()
        # Parameters whose moving average this rank stores.
        self._averaged = self.sharing.share(self.parameters) if ema else ()
        self._average = [p.detach().clone() for p in self._averaged]  # like the parameters
        self.scaler = torch.amp.GradScaler(self.parameters[0].device.type, enabled=scale)
        self.optimized = [p for group in optimizer.param_groups for p in group["params"]]
        self.base_rates = [group["lr"] for group in optimizer.param_groups]
        self._configured = [
            {key: value for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        """Settings of each parameter group of the optimizer, from the configuration."""

    def _check_buffers(self) -> None:
        """Raises UserError if the network has a persistent buffer, because checkpoints contain only
        parameters."""
        buffers = dict(self.network.named_buffers()).keys() & self.network.state_dict().keys()
        if buffers:
            raise UserError(
                f"network: checkpoints do not contain the buffer {min(buffers)}; use a parameter "
                "without gradient or, for a constant, a buffer that is not persistent"
            )

    def set_rate(self, total: int, epoch: float) -> None:
        """Sets the learning rate of each parameter group for the next update.

        total: maximum number of updates in the training
        epoch: number of epochs so far, including the finished part of the current epoch
        """
        factor = self.schedule.factor(self.progress.update, total, epoch)
        factor *= 0.5**self.progress.halvings  # factor 1/2 for each rollback
        for group, rate in zip(self.optimizer.param_groups, self.base_rates, strict=True):
            group["lr"] = rate * factor

    def gradient_norm(self, clip_norm: float, clip_value: float) -> Tensor:
        """Clips the gradient by value, then by norm.

        clip_norm: maximum norm of the gradient; 0 disables clipping by norm
        clip_value: maximum absolute value in the gradient; 0 disables clipping by value

        Returns the norm of the gradient after clipping by value and before clipping by norm.
        """
        self.scaler.unscale_(self.optimizer)  # the norm of the gradient without loss scaling
        gradient = [p.grad for p in self.parameters if p.grad is not None]
        if clip_value:
            largest = nn.utils.get_total_norm(gradient, math.inf)
            nn.utils.clip_grad_value_(self.parameters, clip_value)
        norm = nn.utils.get_total_norm(gradient)
        if clip_value:  # which hides infinite values, to which trainer.on_nan must react
            norm = torch.where(largest.isfinite(), norm, largest)
        # Without this condition, small gradients would be multiplied by 1, which costs a tenth
        # of the update's memory traffic. On a GPU, waiting for the norm would cost more.
        if clip_norm and (not norm.is_cpu or not norm + 1e-6 <= clip_norm):
            nn.utils.clip_grads_with_norm_(self.parameters, clip_norm, norm)
        return norm

    def discard_gradient(self) -> None:
        """Discards the accumulated gradient, after a step or in order to skip the update."""
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=not self.keeps_gradients)

    def step(self) -> None:
        """Runs one optimizer step and updates the moving average of the weights. `gradient_norm`
        must be called first."""
        self.scaler.step(self.optimizer)
        self.discard_gradient()
        if self._averaged:
            # The decay is smaller at first, to reduce the share of the random initial weights.
            decay = min(self.ema, (1 + self.progress.update) / (10 + self.progress.update))
            with torch.no_grad():
                torch._foreach_lerp_(self._average, list(self._averaged), 1 - decay)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Context manager that restores, on exit, the accumulated gradients and the running
        estimates of the network, such as the mean reward of hard attention.

        A parameter that had no gradient before gets the gradient 0.
        """
        estimates = self.network.estimates()  # type: ignore[operator]
        saved_estimates = [estimate.clone() for estimate in estimates]
        saved = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        try:
            yield
        finally:
            with torch.no_grad():
                for estimate, value in zip(estimates, saved_estimates, strict=True):
                    estimate.copy_(value)
                for parameter, gradient in zip(self.parameters, saved, strict=True):
                    if gradient is not None:
                        parameter.grad.copy_(gradient)  # type: ignore[union-attr]
                    elif parameter.grad is not None:
                        parameter.grad.zero_()

    def sound(self) -> bool:
        """Returns whether all weights are finite on all ranks."""
        weights = (*self.parameters, *self._average)
        with torch.no_grad():
            damaged = not all(bool(torch.isfinite(tensor).all()) for tensor in weights)
        return not self.ranks.any(damaged)

    def weights(self) -> dict[str, Tensor]:
        """Returns the weights to validate and save: the moving average if enabled, otherwise the
        current weights. All ranks must call this method."""
        if not self.ema:
            return self._named(self.parameters)
        return self._named(self.sharing.collected(self._average, self.parameters))

    def _named(self, tensors: Sequence[Tensor], prefix: str = "") -> dict[str, Tensor]:
        """Maps the name of each parameter to the tensor that belongs to the parameter.

        tensors: one tensor per parameter, in the order of the parameters, such as the moving
            averages
        prefix: prefix of the names, such as model/
        """
        return {prefix + name: tensor for name, tensor in zip(self.names, tensors, strict=True)}

    @contextlib.contextmanager
    def using(self, weights: dict[str, Tensor]) -> Iterator[None]:
        """Context manager that sets the network to evaluation mode and replaces its weights. On
        exit, restores the weights and sets the network to training mode."""
        # Only the data is replaced, because the optimizer refers to the parameters.
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
        """Returns the state as (JSON, tensors) on rank 0, and None on all other ranks. All ranks
        must call this method."""
        tensors = self._named(self.parameters, "model/")
        if self.ema:
            average = self.weights()
            tensors |= {f"ema/{name}": tensor for name, tensor in average.items()}
        if self.sharing.several:
            self.optimizer.consolidate_state_dict()  # gathers the shares of all ranks on rank 0
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
            "optimizer": {
                "groups": optimizer["param_groups"],
                "configured": self._configured,
                "plain": plain,
            },
            "scaler": self.scaler.state_dict(),
        }
        try:
            json.dumps(state)
        except TypeError as error:
            raise UserError(
                f"the state of the optimizer or of the schedule cannot be saved ({error}); use "
                "tensors only in the optimizer's state of a parameter, and numbers and text "
                "elsewhere"
            ) from error
        return state, tensors

    def load(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Restores the state that `save` returned, except settings of the optimizer, such as
        learning rate and momentum.

        state, tensors: JSON and tensors of the saved state

        Raises UserError if the state does not match the network and the optimizer.
        """
        try:
            self.progress = TrainingProgress.of(state["progress"])
            self.schedule.load({**state["schedule"]})  # raises TypeError for a list
            if state["scaler"]:  # empty if the saved run had another precision
                self.scaler.load_state_dict(state["scaler"])
            self._load_weights(tensors)
            self._load_optimizer(state["optimizer"], tensors)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
            raise UserError(
                f"the training state in the checkpoint is damaged ({error!r})"
            ) from error

    def _load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        weights = self._named(self.parameters, "model/")
        averaged_names = self.sharing.share(self.names)
        # Without a moving average, `self._average` is empty.
        weights |= {f"ema/{n}": p for n, p in zip(averaged_names, self._average, strict=False)}
        with torch.no_grad():
            for name, parameter in weights.items():
                # Checked before the copy, which would broadcast.
                _expect(name, tensors[name], parameter)
                parameter.copy_(tensors[name])

    def _load_optimizer(self, state: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
        values = {int(index): dict(plain) for index, plain in state["plain"].items()}
        optimizer = getattr(self.optimizer, "optim", self.optimizer)  # of a sharded optimizer
        has_known_state = type(optimizer).__module__.startswith("torch.optim")  # not of a plugin
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                index, key = name.split("/")[1:]
                if has_known_state:
                    _expect(name, tensor, _optimizer_tensor(key, self.optimized[int(index)]))
                values.setdefault(int(index), {})[key] = tensor
        # Older versions did not save the configured settings.
        saved_settings = state.get("configured") or [{} for _ in self._configured]
        self.optimizer.load_state_dict({"state": values, "param_groups": state["groups"]})
        groups = zip(self.optimizer.param_groups, self._configured, saved_settings, strict=True)
        for group, settings, before in groups:
            # The configuration may have changed since the save. Other settings keep their saved
            # values, because some optimizers of plugins count in them.
            as_saved = json.loads(json.dumps(settings))  # JSON has no tuples
            changed = [key for key in settings if before.get(key, ...) != as_saved[key]]
            group.update({key: settings[key] for key in changed})
        _add_buffers_of_rmsprop(self.optimizer)


def _add_buffers_of_rmsprop(optimizer: Any) -> None:
    """Adds the buffers for settings of RMSprop that were turned on after the state was saved. Other
    optimizers of torch create such buffers themselves, and have no setting `centered`."""
    state = getattr(optimizer, "optim", optimizer).state  # of a sharded optimizer: of this rank
    for group in optimizer.param_groups:
        is_rmsprop = "centered" in group
        needed = [name for key, name in RMSPROP_BUFFERS.items() if is_rmsprop and group[key]]
        for parameter in group["params"]:
            buffers = state.get(parameter, {})
            for name in needed if buffers else ():  # none before the first update
                buffers.setdefault(name, torch.zeros_like(parameter))


def _optimizer_tensor(key: str, parameter: Tensor) -> Tensor:
    """Returns a tensor with the expected shape of an entry in a parameter's optimizer state.

    key: name of the entry, such as exp_avg
    parameter: parameter of the network
    """
    if key in ("step", "eta", "mu", "mu_product"):
        return parameter.new_empty(())
    # Row and column of Adafactor's factored second moments.
    if key == "row_var":
        return parameter[..., :1]
    return parameter[..., :1, :] if key == "col_var" else parameter


def _expect(name: str, tensor: Tensor, like: Tensor) -> None:
    """Checks a tensor from a checkpoint. Optimizer kernels do not check shapes themselves.

    name: name of the tensor
    tensor: tensor to check
    like: tensor with the expected shape

    Raises ValueError if the shape differs, or if the tensor contains NaN or infinite values.
    """
    if tensor.shape != like.shape or not tensor.is_floating_point():
        raise ValueError(
            f"{name}: expected floating-point values of shape {tuple(like.shape)}, got "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name}: contains NaN or inf")
