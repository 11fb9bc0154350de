"""Ctrl-C, SIGTERM and SIGHUP: noticed at once, obeyed where everything can be saved."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def interruptible() -> Iterator[list[int]]:
    """A list that gets an entry when Ctrl-C, SIGTERM or SIGHUP arrives; a second one interrupts at once."""
    received: list[int] = []

    def note(number: int, _: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    try:
        numbers = [
            getattr(signal, name)
            for name in ("SIGINT", "SIGTERM", "SIGHUP")
            if hasattr(signal, name)
        ]
        previous = {number: signal.signal(number, note) for number in numbers}
    except ValueError:  # not in the main thread: whoever started us handles signals
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
