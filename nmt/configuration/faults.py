"""Errors of a configuration, collected and raised together."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigError, shown
from nmt.foundation.synonyms import SYNONYMS

__all__ = ["ConfigError", "ConfigErrors", "broken", "not_a_choice", "refuse", "shown", "unknown"]
SIMILARITY = 0.6
"""Smallest similarity of a suggested name (difflib)."""
MOST = 3
"""Maximal number of suggestions for a name."""


class ConfigErrors(UserError):
    """All errors of a configuration.

    faults: the errors
    """

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
    """Errors of broken rules.

    rules: tuples of the condition under which the rule is broken, the key, the problem with its
        remedy, and optionally the value of the key
    """
    for is_broken, key, problem, *value in rules:
        if is_broken:
            yield ConfigError(key, problem, shown(value[0]) if value else None)


def unknown(key: str, known: Collection[str], everywhere: Collection[str] = ()) -> ConfigError:
    """The error of an unknown key.

    key: whole key, whose last part is unknown
    known: names in its group
    everywhere: all whole keys of the configuration, for suggestions from other groups
    """
    if not known and not everywhere:
        return ConfigError(key, "no such key (this choice has no settings)")
    nearest = near_matches(key.rpartition(".")[2], known, everywhere)
    return ConfigError(key, "no such key", choices=tuple(sorted(known)), nearest=nearest)


def not_a_choice(
    group: str, value: Any, choices: Sequence[str], elsewhere: Sequence[str] = ()
) -> ConfigError:
    """The error of an unknown choice of a group.

    group: name of the group
    value: the unknown choice
    choices: all choices of the group
    elsewhere: groups that have this choice
    """
    problem = "unknown choice"
    if elsewhere:
        problem += f"; it is a choice of {elsewhere[0]}: {elsewhere[0]}={value}"
    nearest = () if elsewhere else near_matches(str(value).lower(), choices)
    return ConfigError(group, problem, shown(value), tuple(choices), nearest)


def near_matches(
    name: str, known: Collection[str], everywhere: Collection[str] = ()
) -> tuple[str, ...]:
    """Suggestions for an unknown name.

    name: last part of the unknown key
    known: names in its group
    everywhere: whole keys; suggested are those that other toolkits call so, and those that end in
        the name, or in the most similar name
    """
    present = {*known, *everywhere}
    translated = [key for key in SYNONYMS.get(name, ()) if key in present]
    if translated and name not in known:
        return tuple(translated[:MOST])
    # The right name in the wrong group: lr finds optimizer.lr.
    endings: dict[str, list[str]] = {}
    for key in everywhere:
        endings.setdefault(key.rpartition(".")[2], []).append(key)  # lr → optimizer.lr
    similar = difflib.get_close_matches(name, known, 1, SIMILARITY)
    if not similar or name in endings:
        [ending, *_] = [*difflib.get_close_matches(name, endings, 1, SIMILARITY), ""]
        similar = endings.get(ending, [])
    return tuple(similar[:MOST])
