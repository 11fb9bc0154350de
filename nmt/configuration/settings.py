"""The settings of a command as a typed object: what all of them share. There is a class for each YAML at the top of conf/
(training_settings.py, model_settings.py). Its fields are the keys, its annotations their types, and a field of type
`Group` is a group whose keys configure an object (build.py).

A command's `Settings` are only made from a configuration without faults.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.check import mismatches
from nmt.configuration.faults import ConfigError, ConfigErrors, unknown
from nmt.data import as_list
from nmt.data.lines import OPENERS

Some = TypeVar("Some", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings. `written` and `read`: keys that name output files and input files."""

    written: ClassVar[Sequence[str]] = ("output",)
    read: ClassVar[Sequence[str]] = (
        "input", "source", "reference", "target", "nbest", "prefix", "constraints", "gold", "lexicon",
    )  # fmt: skip

    @classmethod
    def of(cls: type[Some], values: Mapping[str, Any], also: Sequence[ConfigError] = ()) -> Some:
        """The settings that a configuration describes. Raises ConfigErrors listing everything that is wrong with it, and the
        faults in `also`, which were found before."""
        found = [*also, *cls._faults(values)]
        found += cls.impossible(values, {fault.key.partition(".")[0] for fault in found})
        if not found:
            found += cls(**values).conflicts()
        if found:
            raise ConfigErrors(found)
        return cls(**values)

    @classmethod
    def impossible(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[ConfigError]:
        """Errors that groups raise when they are built; groups in `faulty` are left out."""
        return []

    @classmethod
    def _faults(cls, values: Mapping[str, Any]) -> list[ConfigError]:
        """What is wrong with single keys and values."""
        groups = cls.groups()
        top = {
            key: value
            for key, value in values.items()
            if key not in groups and not isinstance(value, Mapping)
        }
        found = [
            unknown(key, [f.name for f in dataclasses.fields(cls)])
            for key, value in values.items()
            if key not in groups and isinstance(value, Mapping)
        ]
        found += mismatches(top, cls, given=list(groups))
        for group, needed in groups.items():
            node = values.get(group)
            if isinstance(node, Mapping):
                found += build.faults_of(group, node)
            elif needed or node is not None:
                found.append(ConfigError(group, "missing"))
        repeated = {
            fault.key for fault in found if "." not in fault.key
        }  # e.g. encoder.cell repeats cell
        return [
            fault
            for fault in found
            if fault.key.rpartition(".")[2] not in repeated or "." not in fault.key
        ]

    @classmethod
    def groups(cls) -> dict[str, bool]:
        """The groups of this command, and whether each is needed."""
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [f for f in dataclasses.fields(cls) if hints[f.name] in (Group, Group | None)]
        return {f.name: f.default is dataclasses.MISSING for f in fields}

    def conflicts(self) -> list[ConfigError]:
        """Combinations of values that are not allowed."""
        return self._same_files()

    def idle(self) -> dict[str, str]:
        """Keys that change nothing in this configuration, and why. Typed on the command line, they are faults."""
        return {}

    def _same_files(self) -> list[ConfigError]:
        """An output that is also an input, or written twice."""
        found, taken = [], dict[Path, str]()
        for key in (*self.read, *self.written):
            for name in as_list(getattr(self, key, None) or []):
                file = Path(name).resolve()
                if key in self.written and file.suffix in OPENERS:
                    found.append(
                        ConfigError(
                            key,
                            f"is written as it is, not compressed: leave {file.suffix} out",
                            name,
                        )
                    )
                if key in self.written and file in taken:
                    how = "written" if taken[file] in self.written else "read"
                    found.append(
                        ConfigError(
                            key, f"is {how} as {taken[file]}= too; choose another name", name
                        )
                    )
                taken[file] = key
        return found

    @property
    def values(self) -> dict[str, Any]:
        """The configuration as plain containers, as a checkpoint keeps it."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
