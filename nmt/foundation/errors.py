"""Errors for users."""

from __future__ import annotations


class UserError(ValueError):
    """Something the user can fix: the message names the file, line, key or value, and says what to do.

    The command lines print it without a traceback and exit with status 1.
    """
