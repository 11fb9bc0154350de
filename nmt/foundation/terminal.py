"""Messages for users: on stderr, and optionally in a file."""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console
from rich.logging import RichHandler

console = Console(stderr=True)


def hush() -> None:
    """Nothing is shown any more, but errors that `configuration.command_line` tells itself."""
    console.quiet = True
    logging.getLogger("nmt").setLevel(logging.CRITICAL + 1)


def set_up_logging(file: Path | None = None, level: int = logging.INFO) -> None:
    """Messages go to stderr, and to a file if given."""
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    if console.is_terminal:
        shown: logging.Handler = RichHandler(
            console=console, show_path=False, log_time_format="%H:%M:%S"
        )
        shown.setFormatter(logging.Formatter("%(message)s"))
    else:
        shown = logging.StreamHandler()
        shown.setFormatter(plain)
    handlers = [shown]
    if file is not None:
        kept = logging.FileHandler(file, encoding="utf-8")
        kept.setFormatter(plain)
        handlers.append(kept)
    if console.quiet:
        return
    root = logging.getLogger("nmt")
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False
