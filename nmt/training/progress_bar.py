"""Progress bar of a training on stderr, and log lines of its validations.

`train_loss` is the training loss, with label smoothing and dropout. `nll` is the negative
log-likelihood of a validation in nats per token (or per text), without label smoothing and dropout.
Therefore, `train_loss` and `nll` are not comparable.
"""

import logging
import math
import time

from nmt.foundation.progress import QUIET_SECONDS, ProgressLines
from nmt.training.callback import Callback, Update
from nmt.training.task import Validation

log = logging.getLogger(__name__)


class ProgressBar(Callback):
    """Progress bar of a training, which displays training loss, speed and remaining time. It is a
    callback and a context manager.

    unit: unit of the speed, such as "target tokens"
    """

    def __init__(self, unit: str = "target tokens") -> None:
        self.unit = unit
        self._lines = ProgressLines(QUIET_SECONDS)
        self._first: Update | None = None
        self._began = 0.0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *error: object) -> None:
        self._lines.close()

    def on_update(self, update: Update) -> None:
        if self._first is None:
            self._first = update
            self._began = time.monotonic()
        done = update.update - self._first.update
        remaining = ""
        if done:
            seconds = (time.monotonic() - self._began) / done * (update.total - update.update)
            remaining = f"  {seconds:,.0f} s left"
        self._lines.show(
            f"epoch {update.epoch:.2f}  update {update.update:,}/{update.total:,}  "
            f"train_loss {update.loss:.3f}  {update.speed:,.0f} {self.unit}/s"
            f"{remaining}",
            share=update.update / max(1, update.total),
        )

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        figures = "  ".join(_figure(name, value) for name, value in validation.metrics.items())
        note = "  ← best checkpoint so far" if best else ""
        log.info("validation after %.2f epochs: %s%s", epoch, figures, note)


def _figure(name: str, value: float) -> str:
    """Returns a validation metric as text for the log. The negative log-likelihood, whose key in
    files is `loss`, is named `nll` and followed by the perplexity."""
    if name != "loss":
        return f"exact match {value:.2f} %" if name == "exact" else f"{name} {value:.2f}"
    return f"nll {value:.2f} (without label smoothing and dropout)  perplexity {math.exp(min(value, 100.0)):.2f}"
