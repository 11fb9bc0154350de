"""Logging for users, to stderr and optionally to a file."""

import logging
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

console = Console(stderr=True)


def hush() -> None:
    """Hides all log output; the command line still prints errors that end a command."""
    console.quiet = True
    logging.getLogger("nmt").setLevel(logging.CRITICAL + 1)


def set_up_logging(file: Path | None = None, level: int = logging.INFO) -> None:
    """Sends log messages to stderr, and also to a file if one is given."""
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    if console.is_terminal:
        screen: logging.Handler = RichHandler(
            console=console, show_path=False, log_time_format="%H:%M:%S"
        )
        screen.setFormatter(logging.Formatter("%(message)s"))
    else:
        screen = logging.StreamHandler()
        screen.setFormatter(plain)
    handlers = [screen]
    if file is not None:
        log_file = logging.FileHandler(file, encoding="utf-8")
        log_file.setFormatter(plain)
        handlers.append(log_file)
    # `hush` has silenced this rank, which stays silent.
    if console.quiet:
        return
    root = logging.getLogger("nmt")
    previous = root.handlers[:]
    root.handlers[:] = handlers
    for handler in previous:
        handler.close()
    root.setLevel(level)
    root.propagate = False  # a handler of the caller's root logger would repeat each message
