"""Log lines as JSON objects, one per line (log=json)."""

import datetime
import json
import logging
import math
import os
from collections.abc import Mapping
from typing import Any

_formatter: list[logging.Formatter] = []
"""List with the JSON formatter of this process's log lines; empty for plain text."""


def for_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values in which NaN and infinite numbers, which JSON lacks, are strings."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


class JsonFormatter(logging.Formatter):
    """Formatter that writes log records as JSON objects with the keys time, level and message.

    The attribute `fields` of a log record is a dictionary of further keys, such as `update`.
    """

    def format(self, record: logging.LogRecord) -> str:
        written_at = datetime.datetime.fromtimestamp(record.created).astimezone()
        values: dict[str, Any] = {
            "time": written_at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            **for_json(getattr(record, "fields", {})),
        }
        if record.exc_info:
            values["exception"] = self.formatException(record.exc_info)
        return json.dumps(values, ensure_ascii=False, default=str)


def choose_format(is_json: bool) -> None:
    """Sets the format of the log lines of this process; JSON disables progress bars."""
    _formatter[:] = [JsonFormatter()] if is_json else []
    if is_json:
        os.environ["TTY_COMPATIBLE"] = "0"  # rich then treats a terminal as a file


def chosen_formatter() -> logging.Formatter | None:
    """Returns the formatter of log lines in JSON; None for plain text."""
    return _formatter[0] if _formatter else None


def error_line(message: str) -> str:
    """Returns the line to print on stderr for an error before the log of the command is set up."""
    formatter = chosen_formatter() or logging.Formatter("error: %(message)s")
    return formatter.format(logging.makeLogRecord({"levelname": "ERROR", "msg": message}))
