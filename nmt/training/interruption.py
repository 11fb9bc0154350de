"""Handling of Ctrl-C, SIGTERM and SIGHUP. The signal is recorded, and training stops at the next
point where its state can be saved."""

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
"""Names of the handled signals; some operating systems lack some of them."""
REPEAT = 1.0
"""Seconds after the first signal during which further signals are ignored.

Process supervisors may send a signal both to a process and to its process group.
"""


class Interruption:
    """Records received signals. A Ctrl-C more than `REPEAT` seconds after the first signal raises
    KeyboardInterrupt. All other signals after the first are ignored.

    at_once: whether the first signal already raises KeyboardInterrupt
    requested: whether a signal has arrived
    """

    def __init__(self, at_once: bool = False) -> None:
        self.at_once = at_once
        self.requested = False
        self._first = 0.0

    def note(self, number: int, _: Any) -> None:
        """Signal handler: records the signal, or raises KeyboardInterrupt for a repeated Ctrl-C."""
        now = time.monotonic()
        if not self.requested:
            self.requested = True
            self._first = now
            if self.at_once:
                raise KeyboardInterrupt
        elif number == signal.SIGINT and now - self._first > REPEAT:
            raise KeyboardInterrupt


@contextlib.contextmanager
def interruptible(*, at_once: bool = False) -> Iterator[Interruption]:
    """Context manager that records signals instead of ending the process. Outside the main
    thread, where Python allows no signal handlers, signals are not recorded.

    at_once: whether the first signal raises KeyboardInterrupt
    """
    interruption = Interruption(at_once)
    with contextlib.ExitStack() as at_end:
        with contextlib.suppress(ValueError):
            for number in [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]:
                # Ignored signals stay ignored, as under nohup. None means that the handler was not
                # installed from Python.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    previous = signal.signal(number, interruption.note)
                    at_end.callback(signal.signal, number, previous)
        yield interruption
