"""What is wrong with a configuration, as values. They become text only when they are printed."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.foundation.errors import UserError


@dataclass(frozen=True)
class ConfigError:
    """One thing that is wrong: at which `key`, what the `problem` is, and what to do. `value`: what was given there;
    `choices`: what there is to choose from; `nearest`: the choice that was probably meant."""

    key: str
    problem: str
    value: str | None = None
    choices: tuple[str, ...] = ()
    nearest: str | None = None

    def __str__(self) -> str:
        place = self.key if self.value is None else f"{self.key}={self.value}"
        meant = f"; did you mean {self.nearest}?" if self.nearest else ""
        known = f" (there are: {', '.join(self.choices)})" if self.choices else ""
        return (
            f"{place}: {self.problem}{meant}{known}" if place else f"{self.problem}{meant}{known}"
        )


class ConfigErrors(UserError):
    """All faults of a configuration together."""

    def __init__(self, faults: Sequence[ConfigError]) -> None:
        super().__init__(
            "the configuration has faults:\n" + "\n".join(f"  - {fault}" for fault in faults)
        )
        self.faults = tuple(faults)


def unknown(key: str, known: Collection[str]) -> ConfigError:
    """A key that does not exist, with the keys that do; the last part of `key` is the one that is not known."""
    if not known:
        return ConfigError(key, "no such key (this choice has no settings)")
    near = difflib.get_close_matches(key.rpartition(".")[2], known, 1, 0.6)
    return ConfigError(
        key, "no such key", choices=tuple(sorted(known)), nearest=near[0] if near else None
    )


def not_a_choice(group: str, value: Any, choices: Sequence[str]) -> ConfigError:
    """A choice that does not exist."""
    near = difflib.get_close_matches(str(value).lower(), choices, 1, 0.6)
    problem = f"there is no {str(value)!r} to choose for {group}"
    return ConfigError(group, problem, shown(value), tuple(choices), near[0] if near else None)


def shown(value: Any) -> str:
    """A value as users type it."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    return (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value) or "(nothing)"
    )
