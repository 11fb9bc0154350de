"""Shows the progress of training on stderr: a live bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import logging
import time
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from nmt.foundation.terminal import console
from nmt.training.trainer import Update

log = logging.getLogger(__name__)
QUIET_SECONDS = 15.0
"""Time between two lines where there is no terminal to draw a bar on."""


class ProgressBar:
    """Observer that shows loss, speed (in `unit` per second) and the time left."""

    def __init__(self, unit: str = "target tokens") -> None:
        self.unit = unit
        self._spoken = 0.0
        self._started: tuple[int, float] | None = None
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> ProgressBar:
        if console.is_terminal:
            columns = (
                TextColumn("epoch {task.fields[epoch]:.2f}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}  loss {task.fields[loss]:.3f}"),
                TextColumn(f"{{task.fields[speed]:,.0f}} {self.unit}/s"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=console)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def on_update(self, update: Update) -> None:
        now = time.monotonic()
        if self._bar is not None:
            fields = {"epoch": update.epoch, "loss": update.loss, "speed": update.speed}
            if self._task is None:
                self._task = self._bar.add_task(
                    "", total=update.total, completed=update.update, **fields
                )
            self._bar.update(self._task, completed=update.update, total=update.total, **fields)
            return
        self._started = self._started or (update.update, now)
        if now - self._spoken >= QUIET_SECONDS:
            done, since = update.update - self._started[0], now - self._started[1]
            left = f"{since / done * (update.total - update.update):,.0f} s left" if done else "…"
            log.info(
                "epoch %.2f  update %s/%s  loss %.3f  %s %s/s  %s", update.epoch, f"{update.update:,}",
                f"{update.total:,}", update.loss, f"{update.speed:,.0f}", self.unit, left,
            )  # fmt: skip
            self._spoken = now

    def on_validation(
        self, update: int, epoch: float, metrics: dict[str, float], best: bool
    ) -> None:
        figures = "  ".join(f"{name} {value:.2f}" for name, value in metrics.items())
        log.info(
            "validation after %.2f epochs: %s%s", epoch, figures, "  ← best so far" if best else ""
        )
