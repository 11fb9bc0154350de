"""Progress displays for long tasks, at most one per process.

In a terminal or notebook, progress bars are redrawn in place and removed at the end. Elsewhere,
progress is logged at intervals.
"""

import datetime
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from nmt.foundation.extras import installed

log = logging.getLogger(__name__)
Item = TypeVar("Item")
DISPLAY_DELAY = 2.0
"""Seconds before the first progress display; shorter tasks show none."""
QUIET_SECONDS = 15.0
"""Seconds between two log lines about the progress of the same task."""
DRAW_SECONDS = 0.2
"""Seconds between two redraws of a progress display."""
BAR_WIDTH = 30
"""Width of a progress bar, in characters."""


class ProgressLines:
    """Status lines of one task, redrawn in place in a terminal or notebook and logged elsewhere.

    log_seconds: minimum seconds between two log entries
    """

    def __init__(self, log_seconds: float) -> None:
        self.log_seconds = log_seconds
        self._shown_at = -math.inf
        self._live: Any = None

    def show(
        self,
        *texts: str,
        share: float | None = None,
        elapsed: float | None = None,
        left: float | None = None,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        """Shows the status lines, unless the last update was too recent.

        texts: one or more lines
        share: finished fraction of the task, drawn as a bar; None hides the bar
        elapsed: seconds since the start of the task, shown beside the bar; None if unknown
        left: estimated seconds until the end of the task; None if unknown
        fields: further keys of the log line if log lines are JSON
        """
        from nmt.foundation.terminal import console  # rich takes 50 ms to import

        is_drawn = console.is_terminal or (console.is_jupyter and installed("ipywidgets"))
        now = time.monotonic()
        if now - self._shown_at < (DRAW_SECONDS if is_drawn else self.log_seconds):
            return
        self._shown_at = now
        if not is_drawn:
            *above, last = texts
            for text in above:
                log.info("%s", text)
            values = {**(fields or {}), "seconds_left": left}
            left_text = "" if left is None else f", {left:,.0f} s left"
            log.info("%s%s", last, left_text, extra={"fields": values})
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
        self._live.update(_drawing(texts, share, elapsed, left), refresh=True)

    def end(self, text: str, seconds: float) -> None:
        """Replaces a drawn display with a full bar, which stays on the terminal.

        text: line above the bar
        seconds: duration of the task
        """
        if self._live is not None:
            self._live.transient = False
            self._live.update(_drawing([text], 1.0, seconds, None), refresh=True)

    def postpone(self) -> None:
        """Delays the next log entry until `log_seconds` seconds from now."""
        self._shown_at = time.monotonic()

    def close(self) -> None:
        """Removes the progress display."""
        if self._live is not None:
            self._live.stop()


def _drawing(
    texts: Sequence[str], share: float | None, elapsed: float | None, left: float | None
) -> Any:
    """Returns a Rich renderable of the status lines, with the progress bar below them."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    lines = [Text(text, no_wrap=True, overflow="ellipsis") for text in texts]
    if share is None:
        return Group(*lines)
    bar = ProgressBar(
        total=1.0,
        completed=share,
        width=BAR_WIDTH,
        complete_style="green",
        finished_style="green",
    )
    times = [] if elapsed is None else [f"{clock_time(elapsed)} elapsed"]
    times += [] if left is None else [f"{clock_time(left)} left"]
    row = Table.grid(padding=(0, 1))
    row.add_row(bar, Text(", ".join(times), no_wrap=True))
    return Group(*lines, row)


def clock_time(seconds: float) -> str:
    """Returns a duration as hours, minutes and seconds, such as 0:02:10."""
    return str(datetime.timedelta(seconds=round(seconds)))


def duration(seconds: float) -> str:
    """Returns a duration as text, such as `40 s`, `12 min` or `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Progress display of a task, used as a context manager and called with the number of newly
    finished items.

    what: name of the task in the -ing form, such as "training a vocabulary"
    total: number of items; None if unknown
    unit: plural name of the items
    work: total amount of work in another unit, such as characters, from which the remaining time is
        estimated if items differ in size; None estimates the time from the number of items

    Only the outermost of nested tasks is shown.
    """

    def __init__(self, what: str, total: int | None, unit: str, work: float | None = None) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.work = work
        self.done = 0
        self.work_done = 0.0
        self._began = time.monotonic()
        self._lines: ProgressLines | None = None

    def __enter__(self) -> "Progress":
        _working.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _working.remove(self)  # tasks in different threads may end in any order
        if self._lines is not None:
            self._lines.close()

    def __call__(self, count: int = 1, work: float = 0.0) -> None:
        self.done += count
        self.work_done += work
        seconds = time.monotonic() - self._began
        # Only the outermost task is shown.
        if seconds < DISPLAY_DELAY or _working[0] is not self:
            return
        if self._lines is None:
            if self.total is not None and self.done >= self.total:
                return
            self._lines = ProgressLines(QUIET_SECONDS)
        total = f" of {self.total:,}" if self.total else ""
        text = f"{self.what}: {self.done:,}{total} {self.unit}"
        share = self.done / self.total if self.total else None
        if self.work:
            share = min(1.0, self.work_done / self.work)
        left = seconds / share - seconds if share else None
        fields = {"task": self.what, "done": self.done, "total": self.total, "unit": self.unit}
        self._lines.show(text, share=share, elapsed=seconds, left=left, fields=fields)


def tracked(items: Sequence[Item], what: str, unit: str) -> Iterator[Item]:
    """Yields the items, and displays how many of them are finished.

    items: items of a task
    what: name of the task in the -ing form, such as "checking images"
    unit: plural name of the items
    """
    with Progress(what, len(items), unit) as step:
        for item in items:
            yield item
            step()


def log_speed(count: int, action: str, seconds: float, output: str) -> None:
    """Logs the end of a command that writes a line of output for each line of input.

    count: number of lines
    action: past participle of the action, such as "translated"
    seconds: duration of the work
    output: name of the output file
    """
    speed = count / max(seconds, 1e-9)
    number = f"{speed:,.0f}" if speed >= 10 else f"{speed:.1f}"
    log.info(
        "%s lines %s, %s per second → %s",
        f"{count:,}",
        action,
        number,
        output,
        extra={"fields": {"lines": count, "lines_per_second": speed, "output": output}},
    )


_working: list[Progress] = []
"""Tasks whose progress this process displays, outermost first."""


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Context manager that shows the elapsed seconds of a task whose progress is unknown."""
    with Progress(what, None, "seconds so far") as step, repeating(1.0, step):
        yield


@contextmanager
def repeating(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Context manager that calls a function repeatedly in a background thread.

    seconds: time between two calls
    action: function to call
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
