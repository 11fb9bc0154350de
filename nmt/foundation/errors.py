"""Errors for users, and what to type instead."""

from __future__ import annotations

import re
import shlex

PLAIN = re.compile(r"[A-Za-z0-9_./:@%+*?|\-]+")
"""Values that need no quotes in a configuration."""


class UserError(ValueError):
    """Something the user can fix: the message names the file, line, key or value, and says what to do.

    The command lines print it without a traceback and exit with status 1.
    """


class Stopped(Exception):
    """A training that was stopped and saved, by a signal or as `planned` (trainer.stop_after).

    The command lines exit with status 130 after a signal, and with 0 if it was planned.
    """

    def __init__(self, planned: bool = False) -> None:
        super().__init__()
        self.planned = planned


def typed(**settings: object) -> str:
    """Settings as they are typed at a shell: key=value, quoted for the configuration's grammar and for the shell where
    either needs it."""
    return " ".join(shlex.quote(f"{key}={quoted(str(value))}") for key, value in settings.items())


def quoted(text: str) -> str:
    """The text, between quotes if the configuration's grammar would read something else than this text."""
    if PLAIN.fullmatch(text) and not _is_a_value(text):
        return text
    return (
        "'"
        + re.sub(r"(\\*)('|$)", lambda found: 2 * found[1] + ("\\'" if found[2] else ""), text)
        + "'"
    )


def _is_a_value(text: str) -> bool:
    """Whether the grammar reads a number, a truth value or null."""
    try:
        float(text.replace("_", ""))
    except ValueError:
        return text.lower() in ("null", "true", "false")
    return True
