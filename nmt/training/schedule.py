"""Learning-rate schedules. Each schedule returns the factor by which the configured learning rate
is multiplied.

Schedules are functions of the update number, except `Plateau`, which depends on validation
results. All schedules start with a linear warm-up of `warmup` updates.
"""

import math
from dataclasses import dataclass, field

from nmt.foundation.ranges import Count, Fraction, Ratio, Size


@dataclass(kw_only=True)
class Schedule:
    """Base class of learning-rate schedules, with a linear warm-up and a constant learning rate
    afterwards.

    warmup: number of warm-up updates
    """

    warmup: Count = 0

    def factor(self, step: int, total: int, epoch: float) -> float:
        """Returns the factor of the learning rate.

        step: update number, from 0
        total: maximum number of updates in the training
        epoch: number of epochs so far, including the finished part of the current epoch
        """
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return warm * self.decay(step, total, epoch)

    def decay(self, step: int, total: int, epoch: float) -> float:
        """Returns the factor of the learning rate without the warm-up.

        step: update number, from 0
        total: maximum number of updates in the training
        epoch: number of epochs so far, including the finished part of the current epoch
        """
        return 1.0

    def observe(self, improved: bool) -> None:
        """Called after each validation, whose outcome may change the factor of later updates.

        improved: whether the validation metric has improved
        """

    def state(self) -> dict[str, float]:
        """Returns the state of the schedule, to be saved in checkpoints."""
        return {}

    def load(self, state: dict[str, float]) -> None:
        """Restores a saved state of the schedule. Raises KeyError, TypeError or ValueError if the
        state is damaged."""
        for name, value in self.state().items():
            setattr(self, name, type(value)(state[name]))


class Constant(Schedule):
    """Constant schedule: a constant learning rate after the warm-up."""


@dataclass(kw_only=True)
class LinearDecay(Schedule):
    """Linear decay: the factor of the learning rate falls from 1 to `final`.

    The factor would reach `final` in the update after the last update of the training.
    """

    final: Ratio = 0.0

    def progress(self, step: int, total: int) -> float:
        """Returns the progress of the decay, from 0 after the warm-up to 1 after the last
        update."""
        return min(1.0, max(0, step - self.warmup) / max(1, total - self.warmup))

    def decay(self, step: int, total: int, epoch: float) -> float:
        return 1 - (1 - self.final) * self.progress(step, total)


class InverseSqrt(Schedule):
    """Inverse square-root decay. After the warm-up of w = max(warmup, 1) updates, the factor of the
    learning rate is √(w / step) (Vaswani et al. 2017, eq. 3, scaled to 1 at the peak)."""

    def decay(self, step: int, total: int, epoch: float) -> float:
        warm = max(1, self.warmup)
        return (warm / max(step + 1, warm)) ** 0.5


@dataclass(kw_only=True)
class Noam(Schedule):
    """Noam schedule (Vaswani et al. 2017, eq. 3), which includes a warm-up.

        factor = size^(-1/2) · min(step^(-1/2), step · warmup^(-3/2))

    The factor is not scaled to 1 at its peak, so published learning rates such as optimizer.lr=2
    can be used unchanged.

    warmup: number of warm-up updates
    size: model size (d_model in the paper)
    """

    warmup: Size = 4000
    size: Size = 512

    def factor(self, step: int, total: int, epoch: float) -> float:
        return self.size**-0.5 * min((step + 1) ** -0.5, (step + 1) * self.warmup**-1.5)


class Cosine(LinearDecay):
    """Cosine decay: the factor of the learning rate falls from 1 to `final` along half a cosine
    (Loshchilov & Hutter 2017, eq. 5, without restarts)."""

    def decay(self, step: int, total: int, epoch: float) -> float:
        angle = math.pi * self.progress(step, total)
        return self.final + (1 - self.final) * (1 + math.cos(angle)) / 2


@dataclass(kw_only=True)
class StepDecay(Schedule):
    """Step decay: after every `every` epochs, the learning rate is multiplied by `shrink`."""

    shrink: Fraction = 0.5
    every: Size = 1

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.shrink ** (int(epoch) // self.every)


@dataclass(kw_only=True)
class Exponential(Schedule):
    """Exponential decay: the learning rate falls with every update, by the factor `shrink` per
    epoch."""

    shrink: Fraction = 0.9

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.shrink**epoch


@dataclass(kw_only=True)
class Plateau(Schedule):
    """Plateau schedule: the learning rate is multiplied by `shrink` after `patience` consecutive
    validations without improvement.

    scale: current factor of the learning rate
    worse: current number of consecutive validations without improvement
    """

    shrink: Fraction = 0.5
    patience: Size = 2
    scale: float = field(default=1.0, init=False)
    worse: int = field(default=0, init=False)

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.scale

    def observe(self, improved: bool) -> None:
        self.worse = 0 if improved else self.worse + 1
        if self.worse >= self.patience:
            self.scale *= self.shrink
            self.worse = 0

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "worse": self.worse}


@dataclass(kw_only=True)
class LuongHalving(Schedule):
    """Luong's schedule: the learning rate is halved after `start` epochs, and again after every
    further epoch (Luong et al. 2015, section 4.1)."""

    start: Count = 5

    def decay(self, step: int, total: int, epoch: float) -> float:
        return 0.5 ** max(0, int(epoch) - self.start + 1)
