"""Errors of a configuration as values, which become text when they are printed."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigError, shown

__all__ = ["ConfigError", "ConfigErrors", "broken", "not_a_choice", "refuse", "shown", "unknown"]
SIMILARITY = 0.6
"""Least similarity of a suggestion, as difflib measures it."""
MOST = 3
"""Suggestions for one name."""


class ConfigErrors(UserError):
    """All errors of a configuration together."""

    def __init__(self, faults: Sequence[ConfigError]) -> None:
        lines = "\n".join(f"  - {fault}" for fault in faults)
        super().__init__(f"the configuration has faults:\n{lines}")
        self.faults = tuple(faults)


def refuse(errors: Iterable[ConfigError]) -> None:
    """Raises ConfigErrors if there are any errors."""
    errors = tuple(errors)
    if errors:
        raise ConfigErrors(errors)


def broken(*rules: tuple[Any, ...]) -> Iterator[ConfigError]:
    """Errors of the rules that a configuration breaks. A rule is whether it is broken, a key, the
    problem with its remedy, and the value of the key where that matters.
    """
    for is_broken, key, problem, *value in rules:
        if is_broken:
            yield ConfigError(key, problem, shown(value[0]) if value else None)


def unknown(key: str, known: Collection[str], everywhere: Collection[str] = ()) -> ConfigError:
    """A key that does not exist.

    key: the whole key; its last part is unknown.
    known: the names that its group has.
    everywhere: all whole keys of the configuration, for suggestions from other groups.
    """
    if not known and not everywhere:
        return ConfigError(key, "no such key (this choice has no settings)")
    nearest = near_matches(key.rpartition(".")[2], known, everywhere)
    return ConfigError(key, "no such key", choices=tuple(sorted(known)), nearest=nearest)


def not_a_choice(group: str, value: Any, choices: Sequence[str]) -> ConfigError:
    """A choice that does not exist."""
    problem = f"there is no {str(value)!r} to choose for {group}"
    nearest = near_matches(str(value).lower(), choices)
    return ConfigError(group, problem, shown(value), tuple(choices), nearest)


def near_matches(
    name: str, known: Collection[str], everywhere: Collection[str] = ()
) -> tuple[str, ...]:
    """Names that were probably meant: whole keys that end in this name, the most similar name of
    `known`, or whole keys that end in the most similar name.
    """
    endings: dict[str, list[str]] = {}
    for key in everywhere:
        endings.setdefault(key.rpartition(".")[2], []).append(key)
    similar = difflib.get_close_matches(name, known, 1, SIMILARITY)
    if not similar or name in endings:
        [ending, *_] = [*difflib.get_close_matches(name, endings, 1, SIMILARITY), ""]
        similar = endings.get(ending, [])
    return tuple(similar[:MOST])
