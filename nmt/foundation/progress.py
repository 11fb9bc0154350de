"""The progress of work, with the time left: a bar on a terminal or in a notebook, elsewhere a line now and then; nothing if
the work is short. If one work is part of another, only the outer one is shown."""

from __future__ import annotations

import html
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

log = logging.getLogger(__name__)
PATIENCE = 2.0
"""Seconds of work before anything is shown."""
QUIET_SECONDS = 15.0
"""Time between two lines where there is no bar."""
DRAW_SECONDS = 0.2
"""Time between two changes of a bar in a notebook."""


class Progress:
    """`what` is being done to `total` things called `unit` (None: nobody knows how many). Call it with the number of
    things that are done since the last call."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what, self.total, self.unit = what, total, unit
        self.done = 0
        self._began = time.monotonic()
        self._view: _View | None = None

    def __enter__(self) -> Progress:
        _working.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _working.remove(self)
        if self._view is not None:
            self._view.close()

    def __call__(self, count: int = 1) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._began < PATIENCE or _working[0] is not self:
            return
        if self._view is None:
            if self.total is not None and self.done >= self.total:
                return
            self._view = _view(self)
        self._view.show(now)

    def left(self, now: float) -> float | None:
        """Seconds, if it goes on as it went."""
        return (
            (now - self._began) / self.done * (self.total - self.done)
            if self.total and self.done
            else None
        )

    def said(self, now: float) -> str:
        """A line such as `reading: 500 of 1,000 lines, 3 s left`."""
        left, of = self.left(now), f" of {self.total:,}" if self.total else ""
        return f"{self.what}: {self.done:,}{of} {self.unit}" + (
            "" if left is None else f", {left:,.0f} s left"
        )


_working: list[Progress] = []
"""What this process is doing, the outermost work first."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Counts the seconds of work that does not say how far it is."""
    ready = threading.Event()

    def count() -> None:
        while not ready.wait(1.0):
            step()

    thread = threading.Thread(target=count, daemon=True)
    with Progress(what, None, "seconds so far") as step:
        thread.start()
        try:
            yield
        finally:
            ready.set()
            thread.join()


@runtime_checkable
class _View(Protocol):
    """Shows how far a work is."""

    def show(self, now: float) -> None: ...
    def close(self) -> None: ...


def _view(work: Progress) -> _View:
    from nmt.foundation.terminal import console

    if console.is_jupyter:
        return _Notebook(work)
    return _Bar(work, console) if console.is_terminal else _Lines(work)


class _Lines:
    def __init__(self, work: Progress) -> None:
        self.work, self._spoken = work, -QUIET_SECONDS

    def show(self, now: float) -> None:
        if now - self._spoken >= QUIET_SECONDS:
            self._spoken = now
            log.info("%s", self.work.said(now))

    def close(self) -> None:
        pass


class _Bar:
    def __init__(self, work: Progress, console: Any) -> None:
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
        )
        self.work = work
        self._bar = progress.Progress(
            *columns, progress.TimeRemainingColumn(), console=console, transient=True
        )
        self._task = self._bar.add_task(f"{work.what} ({work.unit})", total=work.total)
        self._bar.start()

    def show(self, now: float) -> None:
        self._bar.update(self._task, completed=self.work.done)

    def close(self) -> None:
        self._bar.stop()


class _Notebook:
    def __init__(self, work: Progress) -> None:
        from IPython.display import HTML, display

        self.work, self._html, self._drawn = work, HTML, -DRAW_SECONDS
        self._place = display(HTML(""), display_id=True)

    def show(self, now: float) -> None:
        if now - self._drawn >= DRAW_SECONDS:
            self._drawn = now
            size = f' value="{self.work.done}" max="{self.work.total}"' if self.work.total else ""
            self._place.update(
                self._html(f"<progress{size}></progress> {html.escape(self.work.said(now))}")
            )

    def close(self) -> None:
        self._place.update(self._html(""))
