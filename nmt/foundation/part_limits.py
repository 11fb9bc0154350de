"""Declarations of components: incompatible settings, and settings that have no effect.

A component declares these settings in two optional class methods:

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]: ...
    @classmethod
    def idle(cls, run: RunView) -> Mapping[str, str]: ...

`conflicts` yields an error for each incompatible setting. `idle` returns the keys without effect,
each with the reason; a key is an error only if the user sets it. nmt/configuration calls both
methods for every component and every recurrent cell of a run, and raises all errors together as
ConfigErrors.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nmt.foundation.configurations import value_of
from nmt.foundation.errors import UsageError


@dataclass(frozen=True)
class PartGroup:
    """Configuration group that selects a class and its constructor arguments.

    by: import path of a package, from which `_target_` selects a class; or import path of the
        default class, which `_target_` can replace with a subclass
    supplied: constructor arguments that are not configuration keys, because other components
        determine them
    optional: supplied arguments that have defaults
    """

    by: str
    supplied: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def is_class(self) -> bool:
        """Whether the group has a default class, so that `_target_` is optional."""
        return self.by.rpartition(".")[2][0].isupper()

    @property
    def given(self) -> tuple[str, ...]:
        """All constructor arguments of the class that are not configuration keys."""
        return self.supplied + self.optional


@dataclass(frozen=True)
class ConfigError:
    """One error of a configuration.

    key: wrong key or group; "" if `problem` names the key
    problem: description of the problem, with the remedy
    value: value of the key in command-line syntax; None if the value does not matter
    choices: all valid values or keys
    nearest: valid keys or choices similar to the wrong key or choice
    """

    key: str
    problem: str
    value: str | None = None
    choices: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = self.key if self.value is None else f"{self.key}={self.value}"
        text = f"{place}: {self.problem}" if place else self.problem
        if self.nearest:
            text += f"; did you mean {' or '.join(self.nearest)}?"
        if self.choices:
            text += f" (available: {', '.join(self.choices)})"
        return text


def shown(value: Any) -> str:
    """Returns a value as written on the command line, such as [a,b], null or true."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or "(nothing)"


class ConfigErrors(UsageError):
    """Exception that contains all errors of a configuration.

    faults: errors of the configuration
    """

    def __init__(self, faults: Sequence[ConfigError]) -> None:
        # The choices of a group are listed once, after its last error.
        last = {fault.choices: fault for fault in faults}
        shown_faults = [
            fault if last[fault.choices] is fault else replace(fault, choices=())
            for fault in faults
        ]
        lines = "\n".join(f"  - {fault}" for fault in shown_faults)
        super().__init__(f"invalid configuration:\n{lines}")
        self.faults = tuple(faults)


def refuse(errors: Iterable[ConfigError]) -> None:
    """Raises ConfigErrors if `errors` is not empty."""
    errors = tuple(errors)
    if errors:
        raise ConfigErrors(errors)


def broken(*rules: tuple[Any, ...]) -> Iterator[ConfigError]:
    """Yields an error for each violated rule.

    rules: tuples (condition for a violation, key, problem with remedy, optional value of the key)
    """
    for is_broken, key, problem, *value in rules:
        if is_broken:
            yield ConfigError(key, problem, shown(value[0]) if value else None)


def idle_keys(*rules: tuple[Any, ...]) -> dict[str, str]:
    """Returns the keys without effect, each with the reason of the first rule that applies.

    rules: tuples (condition, reason, keys …)
    """
    reasons: dict[str, str] = {}
    for applies, reason, *keys in rules:
        if applies:
            reasons = {**dict.fromkeys(keys, reason), **reasons}
    return reasons


@dataclass(frozen=True)
class RunView:
    """Read-only view of a run's configuration for compatibility checks.

    values: the whole configuration as nested dictionaries
    parts: the class selected in each configuration group, by group name
    """

    values: Mapping[str, Any]
    parts: Mapping[str, Any]

    def value(self, key: str) -> Any:
        """Returns the value of a dotted key, such as window.estimator; None if not found."""
        return value_of(self.values, key)

    def error(self, key: str, problem: str) -> ConfigError:
        """Returns an error for a key, with the key's current value."""
        return ConfigError(key, problem, shown(self.value(key)))

    @property
    def attends(self) -> bool:
        """Whether the decoder has attention."""
        return bool(self.value("attention"))

    @property
    def pictures(self) -> bool:
        """Whether the source data contains images."""
        return getattr(self.parts.get("data"), "pictures", False)

    @property
    def sources(self) -> int:
        """Number of source texts per line; 0 if the source is an image only."""
        source = self.value("data.source")
        if isinstance(source, list):
            return len(source)
        return int(source is not None or not self.pictures)

    @property
    def joint(self) -> bool:
        """Whether both languages share one vocabulary."""
        # tokenizer=file has no key `joint`: the vocabulary is joint unless `target` is set.
        joint = self.value("tokenizer.joint")
        return self.value("tokenizer.target") is None if joint is None else joint

    def needing_attention(self, *keys: str) -> Iterator[ConfigError]:
        """Yields an error for each given key that is set although the decoder has no attention."""
        for key in keys:
            if self.value(key) and not self.attends:
                yield self.error(
                    key,
                    "needs attention, but attention=none; leave the key out, or choose an "
                    "attention score function",
                )
