"""The progress of work on stderr, with the time left: a bar on a terminal, elsewhere a line now and then; nothing if the
work is short."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Any

from nmt.report.terminal import console

log = logging.getLogger(__name__)
PATIENCE = 2.0
"""Seconds of work before anything is shown."""
QUIET_SECONDS = 15.0
"""Time between two lines where there is no terminal to draw a bar on."""


class Progress:
    """`what` is being done to `total` things called `unit` (None: nobody knows how many). Call it with the number of
    things that are done since the last call."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self._began = self._spoken = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._began < PATIENCE or (self.total is not None and self.done >= self.total and self._bar is None):
            return
        if console.is_terminal:
            self._draw()
        elif now - self._spoken >= (QUIET_SECONDS if self._spoken > self._began else PATIENCE):
            self._spoken = now
            left, of = "", ""
            if self.total:
                left = (
                    f", {(now - self._began) / self.done * (self.total - self.done):,.0f} s left" if self.done else ""
                )
                of = f" of {self.total:,}"
            log.info("%s: %s%s %s%s", self.what, f"{self.done:,}", of, self.unit, left)

    def _draw(self) -> None:
        if self._bar is None:
            from rich import progress

            columns = progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn()
            self._bar = progress.Progress(*columns, progress.TimeRemainingColumn(), console=console, transient=True)
            self._task = self._bar.add_task(f"{self.what} ({self.unit})", total=self.total)
            self._bar.start()
        self._bar.update(self._task, completed=self.done)
