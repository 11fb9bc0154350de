"""Exceptions with messages for users, and functions that quote settings for the command line."""

import json
import re
import shlex

PLAIN = re.compile(r"[A-Za-z0-9_./:@%+*?|\-]+")
"""Pattern of values that need no quotes in a configuration override."""
PATH = re.compile(
    r"^((?:run_dir|resume|init|model|input|output|source|target|reference|gold|links|constraints)=)"
    r"(\d[\w.]*)$"
)
"""Pattern of a path on the command line that Hydra would read as a number."""


class UserError(ValueError):
    """Error that the user can fix; the message names the file, line, key or value, and the remedy.

    Commands print the message without a traceback and exit with `exit_status`.
    """

    exit_status = 1


class UsageError(UserError):
    """Error of the command line, or of the arguments of a function of nmt: an invalid flag or
    setting, or a file, model or package that is not found."""

    exit_status = 2


class Stopped(Exception):
    """Exception for a training run that stops early, after its state is saved.

    planned: True if `trainer.stop_after` stopped the training, False for a signal

    Commands exit with status 0 after a planned stop, and with 130 after a signal.
    """

    def __init__(self, planned: bool = False) -> None:
        super().__init__("the training was stopped and saved; resume=FOLDER continues it")
        self.planned = planned


def first_line(error: BaseException) -> str:
    """Returns the first line of an error message, or the exception class if the message is
    empty."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def typed(**settings: object) -> str:
    """Returns settings as `key=value` words, quoted for the shell and Hydra's override grammar."""
    words = []
    for key, value in settings.items():
        word = f"{key}={value}"
        text = value if isinstance(value, int | float) else quoted(str(value))
        words.append(word if PATH.match(word) else shlex.quote(f"{key}={text}"))
    return " ".join(words)


def quoted(text: str) -> str:
    """Returns a value, quoted if Hydra's override grammar would parse it as something else."""
    if PLAIN.fullmatch(text) and not _is_a_value(text):
        return text
    # A backslash before a quote would escape the quote, so it is doubled.
    escaped = re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + ('\\"' if match[2] else ""), text)
    return f'"{escaped}"'


def in_list(text: str) -> str:
    """Returns a comma-separated string as a list in Hydra's override grammar, for the corrected
    setting in an error message.

    If an item is not a plain word, all items are quoted.
    """
    items = [item.strip(" \"'") for item in text.removeprefix("[").removesuffix("]").split(",")]
    # JSON's double quotes are valid in Hydra's grammar.
    if not all(re.fullmatch(r"[A-Za-z0-9_./-]+", item) for item in items):
        items = [json.dumps(item, ensure_ascii=False) for item in items]
    return f"[{','.join(items)}]"


def _is_a_value(text: str) -> bool:
    """Returns whether Hydra's override grammar parses a string as a number, Boolean or null."""
    try:
        float(text.replace("_", ""))  # the grammar accepts 1_000
    except ValueError:
        return text.lower() in ("null", "true", "false")
    return True
