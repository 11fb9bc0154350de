"""Settings of a command as a typed object.

Each YAML file at the top of conf/ has a class in training_settings.py, model_settings.py or
analysis_settings.py. Its fields are the keys, its annotations the types. A field of type `Group` is
a group whose keys configure an object (build.py).
"""

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.check import mismatches
from nmt.configuration.faults import ConfigError, broken, refuse, unknown
from nmt.data import as_list
from nmt.data.lines import OPENERS
from nmt.foundation.ranges import Size

Some = TypeVar("Some", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of settings, which are made from valid configurations only.

    written: keys that name output files
    read: keys that name input files
    trains: whether the command trains, and its parts are built for a check
    """

    written: ClassVar[Sequence[str]] = ("output",)
    trains: ClassVar[bool] = False
    read: ClassVar[Sequence[str]] = (
        "input", "source", "reference", "target", "nbest", "prefix", "constraints", "gold", "links",
        "lexicon",
    )  # fmt: skip
    threads: Size | None = None

    @classmethod
    def of(
        cls: type[Some],
        values: Mapping[str, Any],
        also: Sequence[ConfigError] = (),
        unbuilt: Set[str] = frozenset(),
    ) -> Some:
        """Settings of a configuration.

        values: the configuration as plain containers
        also: errors of the command line, to be reported together with those of the values
        unbuilt: groups whose parts are not built for the check

        Raises ConfigErrors with all errors.
        """
        errors = [*also, *cls._wrong_values(values)]
        # Parts are built for the check only where a run would build them anyway.
        if cls.trains:
            faulty = {error.key.partition(".")[0] for error in errors}
            errors += build.impossible(values, faulty | unbuilt)  # values that do not fit together
        # Rules compare values, so they need values of the right types.
        if not errors:
            errors += cls(**values).conflicts()
        refuse(errors)
        return cls(**build.completed(values))

    @classmethod
    def _wrong_values(cls, values: Mapping[str, Any]) -> list[ConfigError]:
        """Errors of single keys and values."""
        groups = cls.groups()
        top = {key: value for key, value in values.items() if key not in groups}
        keys = {field.name for field in dataclasses.fields(cls)}
        # A mapping at the top is a group, and no group of this command.
        errors = [unknown(key, keys) for key in top if isinstance(top[key], Mapping)]
        plain = {key: value for key, value in top.items() if not isinstance(value, Mapping)}
        errors += mismatches(plain, cls, given=list(groups))
        nested = []
        for group, needed in groups.items():
            node = values.get(group)
            if isinstance(node, Mapping):
                nested += build.faults_of(group, node)
            elif needed or node is not None:
                errors.append(ConfigError(group, "missing"))
        # One value at the top, such as cell, is interpolated into encoder.cell and decoder.cell.
        repeated = {error.key for error in errors}
        return errors + [e for e in nested if e.key.rpartition(".")[2] not in repeated]

    @classmethod
    def groups(cls) -> dict[str, bool]:
        """Groups of the command, and whether each is required."""
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [f for f in dataclasses.fields(cls) if hints[f.name] in (Group, Group | None)]
        return {f.name: f.default is dataclasses.MISSING for f in fields}

    def conflicts(self) -> Iterable[ConfigError]:
        """Errors of combinations of values: an output that is also an input or another output."""
        users: dict[Path, str] = {}
        for key in (*self.read, *self.written):
            for name in as_list(getattr(self, key, None) or []):
                # Two spellings of a path are the same file.
                file = Path(name).resolve()
                user = users.setdefault(file, key)
                how = "written" if user in self.written else "read"
                if key in self.written:
                    yield from broken(
                        (
                            file.suffix in OPENERS,
                            key,
                            f"is written as it is, not compressed: leave {file.suffix} out",
                            name,
                        ),
                        (user != key, key, f"is {how} as {user}= too; choose another name", name),
                    )

    def idle(self) -> dict[str, str]:
        """Keys without effect in this configuration, each with the reason.

        They are errors only on the command line.
        """
        return {}

    @property
    def values(self) -> dict[str, Any]:
        """The configuration as plain containers, as in a checkpoint."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
