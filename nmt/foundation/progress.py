"""Progress displays for long tasks, at most one per process.

In a terminal or notebook, progress bars are redrawn in place and removed at the end. Elsewhere,
progress is logged at intervals.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nmt.foundation.extras import installed

log = logging.getLogger(__name__)
PATIENCE = 2.0
"""Seconds before the first progress display; shorter tasks show none."""
QUIET_SECONDS = 15.0
"""Seconds between two log lines of the same task."""
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

    def show(self, *texts: str, share: float | None = None) -> None:
        """Shows the status lines, unless the last update was too recent.

        texts: one or more lines
        share: finished fraction of the task, drawn as a bar; None hides the bar
        """
        from nmt.foundation.terminal import console  # rich takes 50 ms to import

        is_drawn = console.is_terminal or (console.is_jupyter and installed("ipywidgets"))
        now = time.monotonic()
        if now - self._shown_at < (DRAW_SECONDS if is_drawn else self.log_seconds):
            return
        self._shown_at = now
        if not is_drawn:
            for text in texts:
                log.info("%s", text)
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(
                console=console, auto_refresh=False, transient=True, redirect_stdout=False
            )
            self._live.start()
        self._live.update(_drawing(texts, share), refresh=True)

    def postpone(self) -> None:
        """Delays the next log entry by the full interval."""
        self._shown_at = time.monotonic()

    def close(self) -> None:
        """Removes the progress display."""
        if self._live is not None:
            self._live.stop()


def _drawing(texts: Sequence[str], share: float | None) -> Any:
    """Returns a rich renderable of several lines; the last line has a progress bar."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    *above, last = [Text(text, no_wrap=True, overflow="ellipsis") for text in texts]
    row = Table.grid(padding=(0, 1))
    bar = "" if share is None else ProgressBar(total=1.0, completed=share, width=BAR_WIDTH)
    row.add_row(bar, last)
    return Group(*above, row)


class Progress:
    """Context manager that shows the progress of a task; call it with the number of newly finished
    items.

    what: name of the task in the -ing form, such as "training a vocabulary"
    total: number of items; None if unknown
    unit: plural name of the items

    Only the outermost of nested tasks is shown.
    """

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.done = 0
        self._began = time.monotonic()
        self._lines: ProgressLines | None = None

    def __enter__(self) -> "Progress":
        _working.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _working.remove(self)  # tasks in different threads may end in any order
        if self._lines is not None:
            self._lines.close()

    def __call__(self, count: int = 1) -> None:
        self.done += count
        seconds = time.monotonic() - self._began
        # Only the outermost task is shown.
        if seconds < PATIENCE or _working[0] is not self:
            return
        if self._lines is None:
            if self.total is not None and self.done >= self.total:
                return
            self._lines = ProgressLines(QUIET_SECONDS)
        text = f"{self.what}: {self.done:,}"
        share = None
        if self.total:
            text += f" of {self.total:,}"
            share = self.done / self.total
        text += f" {self.unit}"
        if self.total and self.done:
            text += f", {seconds / self.done * (self.total - self.done):,.0f} s left"
        self._lines.show(text, share=share)


_working: list[Progress] = []
"""Running tasks of this process, outermost first."""


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
