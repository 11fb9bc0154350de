"""Learning-rate schedules: each gives a factor for the optimizer's rate.

Most are pure functions of the update; `Plateau` depends on the results of validations. All warm up
linearly for `warmup` updates.
"""

import math
from dataclasses import dataclass, field

from nmt.foundation.ranges import Count, Fraction, Ratio, Size


@dataclass(kw_only=True)
class Schedule:
    """Constant after warm-up; the base of all.

    warmup: updates of the warm-up
    """

    warmup: Count = 0

    def factor(self, step: int, total: int, epoch: float) -> float:
        """Factor of the rate.

        step: number of the update, from 0
        total: largest number of updates of the training
        epoch: passes over the data that are done
        """
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return warm * self.decay(step, total, epoch)

    def decay(self, step: int, total: int, epoch: float) -> float:
        """Factor of the learning rate without the warm-up.

        step: number of the update, from 0
        total: updates of the training
        epoch: epochs that are done
        """
        return 1.0

    def observe(self, improved: bool) -> None:
        """Called after each validation with its outcome."""

    def state(self) -> dict[str, float]:
        """State to save for resuming."""
        return {}

    def load(self, state: dict[str, float]) -> None:
        """Restores a saved state. Raises KeyError, TypeError or ValueError if it is damaged."""
        for name, value in self.state().items():
            setattr(self, name, type(value)(state[name]))


class Constant(Schedule):
    """Constant rate."""


@dataclass(kw_only=True)
class LinearDecay(Schedule):
    """Falls linearly from 1 towards `final`, which it would reach with one more update."""

    final: Ratio = 0.0

    def progress(self, step: int, total: int) -> float:
        """Progress of the decay, from 0 after the warm-up to 1 after the last update.

        step: number of the update, from 0
        total: updates of the training
        """
        return min(1.0, max(0, step - self.warmup) / max(1, total - self.warmup))

    def decay(self, step: int, total: int, epoch: float) -> float:
        return 1 - (1 - self.final) * self.progress(step, total)


class InverseSqrt(Schedule):
    """√(w / step) after w = max(warmup, 1) updates (Vaswani et al. 2017, eq. 3, scaled to 1 at its
    peak)."""

    def decay(self, step: int, total: int, epoch: float) -> float:
        warm = max(1, self.warmup)
        return (warm / max(step + 1, warm)) ** 0.5


@dataclass(kw_only=True)
class Noam(Schedule):
    """size^(-1/2) · min(step^(-1/2), step · warmup^(-3/2)), not scaled to 1 (Vaswani et al. 2017,
    eq. 3): for rates, such as optimizer.lr=2, that were written for it. The warm-up is part of the
    formula."""

    warmup: Size = 4000
    size: Size = 512

    def factor(self, step: int, total: int, epoch: float) -> float:
        return self.size**-0.5 * min((step + 1) ** -0.5, (step + 1) * self.warmup**-1.5)


class Cosine(LinearDecay):
    """Decay as in LinearDecay, along half a cosine (Loshchilov & Hutter 2017, eq. 5, one
    period)."""

    def decay(self, step: int, total: int, epoch: float) -> float:
        angle = math.pi * self.progress(step, total)
        return self.final + (1 - self.final) * (1 + math.cos(angle)) / 2


@dataclass(kw_only=True)
class StepDecay(Schedule):
    """Multiplied by `shrink` after every `every` epochs."""

    shrink: Fraction = 0.5
    every: Size = 1

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.shrink ** (int(epoch) // self.every)


@dataclass(kw_only=True)
class Exponential(Schedule):
    """Exponential decay: every update multiplies the rate, and an epoch multiplies it by
    `shrink`."""

    shrink: Fraction = 0.9

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.shrink**epoch


@dataclass(kw_only=True)
class Plateau(Schedule):
    """Multiplied by `shrink` after `patience` validations in a row without improvement.

    scale: factor so far
    worse: validations in a row without improvement
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
    """Halved after `start` epochs, and again after every further epoch (Luong et al. 2015, section
    4.1)."""

    start: Count = 5

    def decay(self, step: int, total: int, epoch: float) -> float:
        return 0.5 ** max(0, int(epoch) - self.start + 1)
