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


def typed(**settings: object) -> str:
    """Settings as they are typed at a shell: key=value, quoted for the configuration's grammar and for the shell where
    either needs it."""
    words = []
    for key, value in settings.items():
        text = str(value)
        if not PLAIN.fullmatch(text):
            text = "'" + re.sub(r"(\\*)'", r"\1\1\'", text) + "'"
        words.append(shlex.quote(f"{key}={text}"))
    return " ".join(words)
