"""The settings of a command as a typed object. Each YAML at the top of conf/ has a class here, in
training_settings.py, model_settings.py or analysis_settings.py. Fields are the keys, annotations
are their types, and a field of type `Group` is a group whose keys configure an object (build.py).
"""

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.check import mismatches
from nmt.configuration.faults import ConfigError, refuse, unknown
from nmt.data import as_list
from nmt.data.lines import OPENERS

Some = TypeVar("Some", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings, which exist only for configurations without errors.

    written, read: keys that name output files and input files.
    """

    written: ClassVar[Sequence[str]] = ("output",)
    read: ClassVar[Sequence[str]] = (
        "input", "source", "reference", "target", "nbest", "prefix", "constraints", "gold", "lexicon",
    )  # fmt: skip

    @classmethod
    def of(cls: type[Some], values: Mapping[str, Any], also: Sequence[ConfigError] = ()) -> Some:
        """The settings that a configuration describes. Raises ConfigErrors with all its errors,
        and with those in `also`, which were found before.
        """
        errors = [*also, *cls._wrong_values(values)]
        errors += cls.impossible(values, {error.key.partition(".")[0] for error in errors})
        if not errors:
            errors += cls(**values).conflicts()
        refuse(errors)
        return cls(**build.completed(values))

    @classmethod
    def impossible(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[ConfigError]:
        """Errors that groups raise when they are built; groups in `faulty` are left out."""
        return []

    @classmethod
    def _wrong_values(cls, values: Mapping[str, Any]) -> list[ConfigError]:
        """Errors of single keys and values."""
        groups = cls.groups()
        keys = {field.name for field in dataclasses.fields(cls)}
        plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
        errors = [unknown(key, keys) for key in values if key not in groups and key not in plain]
        top = {key: value for key, value in plain.items() if key not in groups}
        errors += mismatches(top, cls, given=list(groups))
        nested = []
        for group, needed in groups.items():
            node = values.get(group)
            if isinstance(node, Mapping):
                nested += build.faults_of(group, node)
            elif needed or node is not None:
                errors.append(ConfigError(group, "missing"))
        # A value at the top, such as cell, stands in several groups: encoder.cell, decoder.cell.
        repeated = {error.key for error in errors}
        return errors + [e for e in nested if e.key.rpartition(".")[2] not in repeated]

    @classmethod
    def groups(cls) -> dict[str, bool]:
        """The groups of this command, and whether each is required."""
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [f for f in dataclasses.fields(cls) if hints[f.name] in (Group, Group | None)]
        return {f.name: f.default is dataclasses.MISSING for f in fields}

    def conflicts(self) -> Iterator[ConfigError]:
        """Combinations of values that are not allowed: an output that is also an input, or written
        twice.
        """
        users: dict[Path, str] = {}
        for key in (*self.read, *self.written):
            for name in as_list(getattr(self, key, None) or []):
                file = Path(name).resolve()
                if key in self.written and file.suffix in OPENERS:
                    yield ConfigError(
                        key, f"is written as it is, not compressed: leave {file.suffix} out", name
                    )
                if key in self.written and file in users:
                    how = "written" if users[file] in self.written else "read"
                    yield ConfigError(
                        key, f"is {how} as {users[file]}= too; choose another name", name
                    )
                users[file] = key

    def idle(self) -> dict[str, str]:
        """Keys without effect in this configuration, and the reasons. Typed on the command line,
        they are errors.
        """
        return {}

    @property
    def values(self) -> dict[str, Any]:
        """The configuration as plain containers, as a checkpoint keeps it."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
