"""Errors for users, and settings as they are typed."""

import re
import shlex

PLAIN = re.compile(r"[A-Za-z0-9_./:@%+*?|\-]+")
"""Values that need no quotes in a configuration."""


class UserError(ValueError):
    """Error that the user can fix; the message names the file, line, key or value, and the remedy.

    Commands print it without a traceback and exit with status 1.
    """


class Stopped(Exception):
    """A training that was stopped and saved, by a signal or as `planned` (trainer.stop_after).

    The command lines exit with status 130 after a signal, and with 0 if it was planned.
    """

    def __init__(self, planned: bool = False) -> None:
        super().__init__()
        self.planned = planned


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its class if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def typed(**settings: object) -> str:
    """Settings as typed at a shell, quoted for the grammar of configurations and the shell."""
    return " ".join(shlex.quote(f"{key}={quoted(str(value))}") for key, value in settings.items())


def quoted(text: str) -> str:
    """A text, between quotes if the configuration's grammar would read another value."""
    if PLAIN.fullmatch(text) and not _is_a_value(text):
        return text
    # Backslashes before a quote, and at the end, would escape it.
    escaped = re.sub(r"(\\*)('|$)", lambda match: 2 * match[1] + ("\\'" if match[2] else ""), text)
    return f"'{escaped}'"


def _is_a_value(text: str) -> bool:
    """Whether the grammar reads a number, a truth value or null."""
    try:
        float(text.replace("_", ""))
    except ValueError:
        return text.lower() in ("null", "true", "false")
    return True
