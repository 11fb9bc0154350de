"""Learning-rate schedules: each gives a factor for the optimizer's rate. Pure functions of the update, or of the
validation results seen; all warm up linearly for `warmup` updates."""

import math

from nmt.foundation.ranges import Count, Fraction, Ratio, Size


class Schedule:
    """Constant after warm-up; the base of all."""

    def __init__(self, *, warmup: Count = 0) -> None:
        self.warmup = warmup

    def factor(self, step: int, total: int, epoch: float) -> float:
        """Factor of the rate for update `step` (from 0) of at most `total`, after `epoch` passes over the data."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return warm * self.decay(step, total, epoch)

    def decay(self, step: int, total: int, epoch: float) -> float:
        return 1.0

    def observe(self, improved: bool) -> None:
        """Called after each validation with its outcome."""

    def state(self) -> dict[str, float]:
        """State to save for resuming."""
        return {}

    def load(self, state: dict[str, float]) -> None:
        for name in self.state():
            setattr(self, name, float(state[name]) if name == "scale" else int(state[name]))


class Constant(Schedule):
    """Constant rate."""


class LinearDecay(Schedule):
    """Falls linearly from 1 towards `final`, which it would reach with one more update."""

    def __init__(self, *, warmup: Count = 0, final: Ratio = 0.0) -> None:
        super().__init__(warmup=warmup)
        self.final = final

    def progress(self, step: int, total: int) -> float:
        """From 0 after the warm-up to 1 after the last update."""
        return min(1.0, max(0, step - self.warmup) / max(1, total - self.warmup))

    def decay(self, step: int, total: int, epoch: float) -> float:
        return 1 - (1 - self.final) * self.progress(step, total)


class InverseSqrt(Schedule):
    """√(w / step) after w = max(warmup, 1) updates (Vaswani et al. 2017, eq. 3, scaled to 1 at its peak)."""

    def decay(self, step: int, total: int, epoch: float) -> float:
        warm = max(1, self.warmup)
        return (warm / max(step + 1, warm)) ** 0.5


class Noam(Schedule):
    """size^(-1/2) · min(step^(-1/2), step · warmup^(-3/2)), not scaled to 1 (Vaswani et al. 2017, eq. 3): for rates, such as
    optimizer.lr=2, that were written for it. The warm-up is part of the formula."""

    def __init__(self, *, warmup: Size = 4000, size: Size = 512) -> None:
        super().__init__(warmup=warmup)
        self.size = size

    def factor(self, step: int, total: int, epoch: float) -> float:
        return self.size**-0.5 * min((step + 1) ** -0.5, (step + 1) * self.warmup**-1.5)


class Cosine(LinearDecay):
    """As Linear, but along half a cosine (Loshchilov & Hutter 2017, eq. 5, one period)."""

    def decay(self, step: int, total: int, epoch: float) -> float:
        return (
            self.final + (1 - self.final) * (1 + math.cos(math.pi * self.progress(step, total))) / 2
        )


class StepDecay(Schedule):
    """Multiplied by `shrink` after every `every` epochs."""

    def __init__(self, *, warmup: Count = 0, shrink: Fraction = 0.5, every: Size = 1) -> None:
        super().__init__(warmup=warmup)
        self.shrink, self.every = shrink, every

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.shrink ** (int(epoch) // self.every)


class Exponential(Schedule):
    """Multiplied by `shrink` in the course of each epoch, a little at every update."""

    def __init__(self, *, warmup: Count = 0, shrink: Fraction = 0.9) -> None:
        super().__init__(warmup=warmup)
        self.shrink = shrink

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.shrink**epoch


class Plateau(Schedule):
    """Multiplied by `shrink` after `patience` validations in a row without improvement."""

    def __init__(self, *, warmup: Count = 0, shrink: Fraction = 0.5, patience: Size = 2) -> None:
        super().__init__(warmup=warmup)
        self.shrink, self.patience = shrink, patience
        self.scale, self.worse = 1.0, 0

    def decay(self, step: int, total: int, epoch: float) -> float:
        return self.scale

    def observe(self, improved: bool) -> None:
        self.worse = 0 if improved else self.worse + 1
        if self.worse >= self.patience:
            self.scale, self.worse = self.scale * self.shrink, 0

    def state(self) -> dict[str, float]:
        return {"scale": self.scale, "worse": self.worse}


class LuongHalving(Schedule):
    """Halved after `start` epochs, and again after every further epoch (Luong et al. 2015, section 4.1)."""

    def __init__(self, *, warmup: Count = 0, start: Count = 5) -> None:
        super().__init__(warmup=warmup)
        self.start = start

    def decay(self, step: int, total: int, epoch: float) -> float:
        return 0.5 ** max(0, int(epoch) - self.start + 1)
