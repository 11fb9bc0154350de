"""Settings of the training loop."""

from dataclasses import dataclass
from typing import Literal

from nmt.foundation.devices import Precision
from nmt.foundation.ranges import Count, Fraction, NonNegative, Positive, Size
from nmt.training.time_budget import seconds_of


@dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """Settings of the training loop: length, validations, saves, reports, and failures."""

    max_epochs: Size = 10
    """Maximum number of epochs to train."""
    max_updates: Count = 0
    """Maximum number of updates to train; 0 for no limit."""
    time_budget: str | float | None = None
    """Maximum time of the training with its validations: a number of minutes, or text such as 90s,
    30m or 2h. The total number of updates, which the learning-rate schedule needs, is computed from
    the measured speed. None for no limit."""
    stop_after: Count = 0
    """Number of epochs after which training pauses, with a checkpoint to resume from. The schedule
    still uses the full length of the training. 0 disables the pause."""
    accumulate: Size = 1
    """Number of batches whose gradients each rank accumulates per update."""
    clip_norm: NonNegative = 1.0
    """Maximum norm of the gradient; 0 disables clipping by norm."""
    clip_value: NonNegative = 0.0
    """Maximum absolute value in the gradient; 0 disables clipping by value."""
    precision: Precision = "float32"
    """Precision of the matrix multiplications: the name of an autocast dtype, or float32."""
    validate_every: Positive = 1.0
    """Number of epochs between two validations, possibly fractional."""
    validate_every_updates: Count = 0
    """Number of updates between two validations; 0 uses `validate_every`."""
    patience: Count = 0
    """Number of validations without improvement after which training stops; 0 disables early
    stopping."""
    ema: Fraction = 0.0
    """Decay per update of the exponential moving average of the weights; in update u, counted from
    0, at most (1 + u) / (10 + u). The average is validated, and saved as the best weights. 0
    disables the average."""
    average: Count = 0
    """Number of best validations whose weights are averaged at the end of training. The average is
    saved if it scores higher than the best weights. 0 disables averaging."""
    save_every: NonNegative = 5.0
    """Minutes between two saves of the training state."""
    log_every: Size = 20
    """Number of updates between two progress reports."""
    keep: Size = 1
    """Number of most recent training checkpoints to keep in the run folder."""
    on_nan: Literal["stop", "skip", "rollback"] = "stop"
    """Reaction to a NaN or infinite loss or gradient. NaN or infinite weights are never saved.

    stop: raise an error and keep the last saved state
    skip: skip the update; raise an error after 10 consecutive skipped updates
    rollback: restore the last saved state and halve the learning rate

    On GPUs, loss and gradient are read only before a report, a validation or a save, because each
    reading waits for the GPU. With `skip`, loss and gradient are read at every update.
    """
    shard: bool = False
    """Whether the optimizer's state and the moving average are divided among the ranks to save
    memory."""
    capture: bool | None = None
    """Whether the computation of the gradient is recorded once per batch shape and then replayed.
    Batches are padded to one of at most 64 shapes. On a GPU, a recording is a CUDA graph, and
    training is several times as fast. On a CPU, replaying is slower and only useful for tests. None
    records on a GPU only."""

    def __post_init__(self) -> None:
        if self.time_budget is not None:
            seconds_of(self.time_budget)
