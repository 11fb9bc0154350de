"""Ctrl-C, SIGTERM and SIGHUP: noted at once, obeyed where everything can be saved."""

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Names of the signals; not every system has all."""
REPEAT = 1.0
"""Seconds after the first signal in which further ones count as the same: supervisors signal a
process and its group."""


class Interruption:
    """Whether a signal has arrived.

    A later Ctrl-C raises KeyboardInterrupt at once; all other repetitions are ignored.
    """

    def __init__(self) -> None:
        self.requested = False
        self._first = 0.0

    def note(self, number: int, _: Any) -> None:
        """Handler of the signals."""
        now = time.monotonic()
        if not self.requested:
            self.requested = True
            self._first = now
        elif number == signal.SIGINT and now - self._first > REPEAT:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible() -> Iterator[Interruption]:
    """Handles the signals for a while. Does nothing outside the main thread, where Python has no
    handlers."""
    interruption = Interruption()
    previous: dict[int, Any] = {}
    with contextlib.suppress(ValueError):
        for number in [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]:
            previous[number] = signal.signal(number, interruption.note)
    try:
        yield interruption
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
