"""Words of a command line: flags such as --help, positional arguments, and overrides."""

import argparse
import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nmt.foundation.errors import UsageError, quoted
from nmt.foundation.part_limits import ConfigError
from nmt.foundation.synonyms import SYNONYMS

POSITIONAL = {"report": "folders", "compare": "systems", "check_attention": "functions"}
"""Maps a command to the key that receives its positional arguments as a list."""
SWITCH = {"action": "store_true"}
"""Options of argparse for a flag without a value."""
FLAGS: Mapping[tuple[str, ...], Mapping[str, Any]] = {
    ("--multirun", "-m"): SWITCH,
    ("--dry-run",): SWITCH,
    ("--config-dir", "-cd"): {"action": "append", "default": []},
    ("--cfg", "-c"): {"choices": ["job"]},
    ("--plugins",): {"action": "append", "default": []},
    ("--from",): {"dest": "again"},
    ("--help", "-h"): SWITCH,
    ("--shell-completion", "-sc"): SWITCH,
    ("--version",): SWITCH,
}
"""Names of each command-line flag, and the flag's argparse options."""


def flags_and_words(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parses a command line into flags and the remaining words, which include unknown flags.

    Raises UsageError if a flag is used incorrectly.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for names, options in FLAGS.items():
        parser.add_argument(*names, **options)
    try:
        return parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from error


def with_key(command: str, overrides: Sequence[str]) -> list[str]:
    """Converts positional arguments to the key that contains them as a list, such as folders=[…] of
    nmt.report. A word with "/" before its first "=" is a path.
    """
    if command not in POSITIONAL:
        return list(overrides)
    alone = [text for text in overrides if not text.startswith("~") and _is_positional(text)]
    if not alone:
        return list(overrides)
    others = [text for text in overrides if text not in alone]
    key = POSITIONAL[command]
    if any(text.startswith(f"{key}=") for text in others):
        raise UsageError(f"{key}: given twice, as {key}=… and without a key; use only one of them")
    return [*others, f"{key}=[{','.join(map(quoted, alone))}]"]


def _is_positional(text: str) -> bool:
    return "=" not in text or "/" in text.partition("=")[0]


def no_such_flag(flag: str) -> ConfigError:
    """Returns the error for an unknown command-line flag, with a suggested flag or key."""
    name, value = flag.partition("=")[::2]
    if name in ("--config", "-config"):
        problem = "flag not found; to train from the config.yaml of a run, write --from FILE"
        return ConfigError(name, problem)
    key = name.lstrip("-").replace("-", "_")
    if not key:
        return ConfigError(name, "not supported; leave it out")
    translated = SYNONYMS.get(key)
    near = tuple(difflib.get_close_matches(name, itertools.chain(*FLAGS), 1, 0.7))
    if near and not translated:
        return ConfigError(name, "flag not found", nearest=near)
    keys = " or ".join(f"{word}={value or 'VALUE'}" for word in translated or (key,))
    advice = f". Write keys without dashes, as {keys}; --help lists all keys"
    return ConfigError(name, f"flag not found{advice}")


def space_errors(words: Sequence[str]) -> Iterator[ConfigError]:
    """Yields an error for each list with spaces and for spaces around an equals sign."""
    for i, word in enumerate(words):
        if "=[" in word and word.count("[") > word.count("]"):
            end = next((j for j in range(i, len(words)) if words[j].endswith("]")), i)
            text = " ".join(words[i : end + 1])
            if end > i:
                yield ConfigError(text, f"the list has spaces; put it in quotes: '{text}'")
    for before, after in itertools.pairwise(words):
        is_split = after.startswith("=") or (before.endswith("=") and "=" not in after)
        if is_split and before != "=":
            problem = "must have the form key=value, without spaces around ="
            yield ConfigError(f"{before} {after}", problem)
