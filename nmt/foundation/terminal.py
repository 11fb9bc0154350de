"""Logging for users, to stderr and optionally to a file."""

import contextlib
import logging
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmt.foundation.json_log import chosen_formatter

console = Console(stderr=True, highlight=False)
LEVEL_STYLES = {"WARNING": "bold yellow", "ERROR": "bold red", "CRITICAL": "bold red"}
"""Colours of level names on a terminal. INFO and DEBUG messages are printed without a level name.
"""
early_messages: list[str] = []
"""Messages logged before the path of the command's log file is known. They are written to the log
file when it is opened."""


class TerminalHandler(logging.Handler):
    """Log handler for a terminal, which prints the time, the level of warnings and errors, and the
    message.

    If a record has the attribute `screen`, a Rich renderable, this attribute is printed instead of
    the message.
    """

    def emit(self, record: logging.LogRecord) -> None:
        level = record.levelname if record.levelname in LEVEL_STYLES else ""
        message = Text.assemble(
            (level, LEVEL_STYLES.get(level, "")), " " * bool(level), self.format(record)
        )
        line = Table.grid(padding=(0, 1))
        written_at = time.strftime("%H:%M:%S", time.localtime(record.created))
        line.add_row(Text(written_at, "dim"), getattr(record, "screen", message))
        console.print(line)


def hush() -> None:
    """Hides all log output; the command line still prints errors that end a command."""
    console.quiet = True
    logging.getLogger("nmt").setLevel(logging.CRITICAL + 1)


class LogFile(logging.FileHandler):
    """Log file that stops with a warning if it cannot be written, as on a full disk."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
            return
        root = logging.getLogger("nmt")
        if self in root.handlers:
            root.removeHandler(self)
            with contextlib.suppress(OSError):  # of the text that is not yet written
                self.close()
            root.warning("%s: cannot be written, so logging to it ends", self.baseFilename)


def set_up_logging(file: Path | None = None) -> None:
    """Sends log messages to stderr and, if a file is given, also to the file."""
    # `hush` has silenced this rank, which stays silent.
    if console.quiet:
        return
    root = logging.getLogger("nmt")
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    if console.is_terminal:
        screen: logging.Handler = TerminalHandler()
    else:
        screen = logging.StreamHandler()
        screen.setFormatter(chosen_formatter() or plain)
    handlers = [screen]
    if file is not None:
        log_file = LogFile(file, encoding="utf-8", errors="backslashreplace")
        log_file.setFormatter(plain)
        for message in early_messages:
            log_file.emit(root.makeRecord("nmt", logging.INFO, "", 0, message, (), None))
        early_messages.clear()
        handlers.append(log_file)
    previous = root.handlers[:]
    root.handlers[:] = handlers
    for handler in previous:
        handler.close()
    root.setLevel(logging.INFO)
    root.propagate = False  # a handler of the caller's root logger would repeat each message


def log_early(message: str) -> None:
    """Logs a message before the path of the command's log file is known. A message is logged once.

    The level is INFO. Before logging is set up, the level is WARNING, because Python then prints
    only warnings and errors.
    """
    if message not in early_messages:
        early_messages.append(message)
        root = logging.getLogger("nmt")
        formatter = chosen_formatter()
        if formatter is None or root.hasHandlers():
            root.log(logging.INFO if root.hasHandlers() else logging.WARNING, "%s", message)
        elif root.isEnabledFor(logging.WARNING):
            record = logging.makeLogRecord({"levelname": "INFO", "msg": message})
            print(formatter.format(record), file=sys.stderr)
