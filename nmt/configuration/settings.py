"""Typed settings of commands.

Each top-level YAML file in conf/ has a settings class in training_settings.py or model_settings.py.
The fields of the class are the keys, with types as annotations. The keys of a field of type `Group`
configure an object (nmt/components.py).
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from nmt.components import Group
from nmt.configuration.check import completed, faults_of, impossible, mismatches
from nmt.configuration.faults import ConfigError, broken, refuse, unknown
from nmt.data import as_list
from nmt.data.lines import OPENERS
from nmt.foundation.ranges import Size

Some = TypeVar("Some", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of command settings; instances are created from valid configurations only.

    written: keys that name output files
    trains: whether the command trains, so that validation builds all components
    read: keys that name input files
    """

    written: ClassVar[Sequence[str]] = ("output",)
    trains: ClassVar[bool] = False
    read: ClassVar[Sequence[str]] = (
        "input", "source", "reference", "target", "nbest", "prefix", "constraints", "gold", "links",
        "lexicon",
    )  # fmt: skip
    threads: Size | None = None
    log: Literal["text", "json"] = "text"

    @classmethod
    def of(
        cls: type[Some],
        values: Mapping[str, Any],
        also: Sequence[ConfigError] = (),
        unbuilt: Set[str] = frozenset(),
    ) -> Some:
        """Validates a configuration and returns its settings.

        values: configuration as nested dictionaries and lists
        also: errors of the command line, reported together with errors of the values
        unbuilt: groups whose components are not built for validation

        Raises ConfigErrors with all errors.
        """
        errors = [*also, *cls._wrong_values(values)]
        # Components are built for validation only if the command builds them anyway.
        if cls.trains:
            faulty = {error.key.partition(".")[0] for error in errors}
            # errors for incompatible combinations of values
            errors += impossible(values, faulty | unbuilt)
        # Rules compare values, so all values must have valid types.
        if not errors:
            errors += cls(**values).conflicts()
        refuse(errors)
        return cls(**completed(values))

    @classmethod
    def _wrong_values(cls, values: Mapping[str, Any]) -> list[ConfigError]:
        """Returns errors for unknown keys and invalid values, each checked on its own."""
        groups = cls.groups()
        top = {key: value for key, value in values.items() if key not in groups}
        # all dotted keys, from which messages suggest similar ones
        keys = {field.name for field in dataclasses.fields(cls)}
        # A top-level mapping that is not a group of this command.
        errors = [unknown(key, keys) for key in top if isinstance(top[key], Mapping)]
        plain = {key: value for key, value in top.items() if not isinstance(value, Mapping)}
        errors += mismatches(plain, cls, given=list(groups))
        nested = []
        for group, needed in groups.items():
            node = values.get(group)
            if isinstance(node, Mapping):
                nested += faults_of(group, node)
            elif needed or node is not None:
                errors.append(ConfigError(group, "missing"))
        # An invalid top-level value, such as cell, recurs in encoder.cell and decoder.cell.
        repeated = {error.key for error in errors}
        return errors + [e for e in nested if e.key.rpartition(".")[2] not in repeated]

    @classmethod
    def groups(cls) -> dict[str, bool]:
        """Returns the configuration groups of the command, and whether each is required."""
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [f for f in dataclasses.fields(cls) if hints[f.name] in (Group, Group | None)]
        return {f.name: f.default is dataclasses.MISSING for f in fields}

    def conflicts(self) -> Iterable[ConfigError]:
        """Yields an error for each invalid combination of values.

        The base class checks that an output file is neither an input nor another output.
        """
        users: dict[Path, str] = {}
        for key in (*self.read, *self.written):
            for name in as_list(getattr(self, key, None) or []):
                # Different spellings of a path may name the same file.
                file = Path(name).resolve()
                user = users.setdefault(file, key)
                how = "written" if user in self.written else "read"
                if key in self.written:
                    yield from broken(
                        (
                            file.suffix in OPENERS,
                            key,
                            f"compressed output is not supported; leave {file.suffix} out",
                            name,
                        ),
                        (user != key, key, f"is also {how} by {user}; choose another file", name),
                    )

    def idle(self) -> dict[str, str]:
        """Returns the keys without effect in this configuration, each with the reason.

        A key without effect is an error only if the command line sets it.
        """
        return {}

    @property
    def values(self) -> dict[str, Any]:
        """Configuration as nested dictionaries and lists, as stored in a checkpoint."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
