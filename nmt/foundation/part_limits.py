"""Limits of a part: the settings that it cannot be combined with, and keys that have no effect.

A part declares them beside its class, in two optional class methods:

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]: ...
    @classmethod
    def idle(cls, run: RunView) -> Mapping[str, str]: ...

`conflicts` yields an error for each setting that the part does not allow. `idle` returns the keys
without effect, each with the reason; such a key is an error only where it is typed.
nmt/configuration calls both for every part of a run, and for every recurrent cell.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ConfigError:
    """One error of a configuration.

    key: the key or group that is wrong; "" if the problem names it.
    problem: the problem and the remedy.
    value: the value of the key as it is typed; None if it does not matter.
    choices: all values or keys that exist.
    nearest: the keys or choices that were probably meant.
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
    """A value as it is typed on a command line."""
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or "(nothing)"


@dataclass(frozen=True)
class RunView:
    """The configuration of a run as its parts see it.

    values: the whole configuration as plain containers.
    parts: the class that each group configures, by the name of the group.
    """

    values: Mapping[str, Any]
    parts: Mapping[str, Any]

    def value(self, key: str) -> Any:
        """The value of a key such as window.estimator; None where the configuration has no such
        key.
        """
        node: Any = self.values
        for name in key.split("."):
            node = node.get(name) if isinstance(node, Mapping) else None
        return node

    def error(self, key: str, problem: str) -> ConfigError:
        """An error that shows the present value of a key."""
        return ConfigError(key, problem, shown(self.value(key)))

    @property
    def attends(self) -> bool:
        """Whether the decoder has attention."""
        return bool(self.value("attention"))

    @property
    def pictures(self) -> bool:
        """Whether the data has pictures."""
        return getattr(self.parts.get("data"), "pictures", False)

    @property
    def sources(self) -> int:
        """The number of texts in a source line; 0 for pictures alone."""
        source = self.value("data.source")
        if isinstance(source, list):
            return len(source)
        return int(source is not None or not self.pictures)

    @property
    def joint(self) -> bool:
        """Whether both languages share one vocabulary."""
        # tokenizer=file has no such key: one file serves both languages, unless there are two.
        joint = self.value("tokenizer.joint")
        return self.value("tokenizer.target") is None if joint is None else joint

    def needing_attention(self, *keys: str) -> Iterator[ConfigError]:
        """Errors for those of the keys that are set although the decoder has no attention."""
        for key in keys:
            if self.value(key) and not self.attends:
                why = "needs attention, and there is none (attention=none): leave it out"
                yield self.error(key, why)
