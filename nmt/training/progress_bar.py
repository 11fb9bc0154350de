"""Display of a training run on stderr: a progress bar, and the results of the validations.

On a terminal, the validations form a table; elsewhere, each is a log line.

`train_loss` is the training loss, with label smoothing and dropout. `nll` is the negative
log-likelihood of a validation in nats per token (or per text), without label smoothing and dropout.
Therefore, `train_loss` and `nll` are not comparable.
"""

import contextlib
import logging
import math
import time
from typing import Any

from nmt.foundation.progress import QUIET_SECONDS, ProgressLines, duration
from nmt.metric import score_text
from nmt.training.callback import Callback, Update
from nmt.training.task import Validation

log = logging.getLogger(__name__)
TIME_WIDTH = 9
"""Width in characters of the time at the beginning of a log line on a terminal, including the space
after the time."""
MEASURED_SECONDS = 30.0
"""Seconds of training after which the total duration is estimated."""
LONG_SECONDS = 600.0
"""Estimated duration in seconds of a training run above which the estimate is logged."""
BEST_MARK = "★"
"""Marker of the best validation so far in the table of validations."""


class ProgressBar(Callback, contextlib.AbstractContextManager["ProgressBar"]):
    """Progress bar of a training run, which displays training loss, speed and remaining time. The
    object is a callback and a context manager.

    unit: unit of the speed, such as "target tokens"
    """

    def __init__(self, unit: str = "target tokens") -> None:
        self.unit = unit
        self._lines = ProgressLines(QUIET_SECONDS)
        self._first: Update | None = None
        self._last: Update | None = None
        self._began = time.monotonic()
        self._ended_at = ""
        self._has_head = False
        self._is_estimated = False

    def __exit__(self, *error: object) -> None:
        if self._last is not None and error[0] is None:
            self._lines.end(self._ended_at, time.monotonic() - self._began)
        self._lines.close()

    def on_update(self, update: Update) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = update
            self._began = now
        self._last = update
        done = update.update - self._first.update
        elapsed = now - self._began
        left = elapsed / done * (update.total - update.update) if done else None
        if left is not None and elapsed > MEASURED_SECONDS and not self._is_estimated:
            self._is_estimated = True
            if elapsed + left > LONG_SECONDS:
                log.info(
                    "estimated training time: %s (until about update %s; less if trainer.patience "
                    "ends the training early). To shorten the training, set time_budget or "
                    "trainer.max_updates, or lower trainer.max_epochs",
                    duration(elapsed + left),
                    f"{update.total:,}",
                )
        self._ended_at = _position(update.epoch, update.update, update.total)
        self._lines.show(
            f"{self._ended_at}  train_loss {update.loss:.3f}  {update.speed:,.0f} {self.unit}/s",
            share=update.update / max(1, update.total),
            elapsed=elapsed,
            left=left,
            fields={
                "epoch": update.epoch,
                "update": update.update,
                "train_loss": update.loss,
                f"{self.unit}_per_second": update.speed,
            },
        )

    def on_validation(self, update: int, epoch: float, validation: Validation, best: bool) -> None:
        figures = "  ".join(_figure(name, value) for name, value in validation.metrics.items())
        note = "  ← best checkpoint so far" if best else ""
        screen = self._table_row(update, epoch, validation, best)
        fields = {"epoch": epoch, "update": update, "best": best, **validation.metrics}
        extra = {**screen, "fields": fields}
        log.info("validation after %.2f epochs: %s%s", epoch, figures, note, extra=extra)
        if self._last is not None:
            self._ended_at = _position(epoch, update, self._last.total)

    def _table_row(
        self, update: int, epoch: float, validation: Validation, best: bool
    ) -> dict[str, Any]:
        """Returns extra attributes for the log record of a validation. The attribute `screen` is a
        row of the validation table, which the terminal shows instead of the message.

        If stderr is not a terminal, the result is empty. Before the first row, the table header
        is printed. Columns that do not fit the width of the terminal are left out; train.log
        contains all metrics.
        """
        from nmt.foundation.terminal import Text, console

        if not console.is_terminal:
            return {}
        nll = validation.metrics.get("loss", math.nan)
        cells = {
            "epoch": f"{epoch:.2f}",
            "updates": f"{update:,}",
            "train_loss": "" if self._last is None else f"{self._last.loss:.3f}",
            "nll": f"{nll:.3f}",
            "perplexity": f"{math.exp(min(nll, 100.0)):.4g}",
            **{n: f"{value:.2f}" for n, value in validation.metrics.items() if n != "loss"},
        }
        head = ""
        row = ""
        for name, cell in cells.items():
            width = max(len(name), 6)
            if TIME_WIDTH + len(head) + width + len(BEST_MARK) + 2 > console.width:
                break
            head += f"{name:>{width}} "
            row += f"{cell:>{width}} "
        if not self._has_head:
            console.print(Text(" " * TIME_WIDTH + head, "bold"))
            self._has_head = True
        mark = (BEST_MARK if best else "", "bold green")
        example = (f"\n{validation.example}" if validation.example else "", "dim")
        return {"screen": Text.assemble(row, mark, example)}


def _position(epoch: float, update: int, total: int) -> str:
    """Returns the position in training as text: epoch, update, and maximum number of updates."""
    return f"epoch {epoch:.2f}  update {update:,}/{total:,}"


def _figure(name: str, value: float) -> str:
    """Returns a validation metric as text for the log. The negative log-likelihood, whose key in
    files is `loss`, is named `nll` and followed by the perplexity."""
    if name != "loss":
        return score_text(name, value)
    perplexity = math.exp(min(value, 100.0))
    return f"nll {value:.2f} (without label smoothing and dropout)  perplexity {perplexity:.2f}"
