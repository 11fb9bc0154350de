"""Typed settings of commands.

The keys of a command's YAML file in conf/ are the fields of a subclass of `Settings`, or the
keyword parameters of the command's function (`settings_of`); configure.py names the class or
function of each command. Annotations give the types of the keys. A field of type `Group` has keys
of its own, from which a component is built (nmt/components.py).
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from nmt.configuration.check import completed, impossible, mismatches
from nmt.data import as_list
from nmt.data.lines import OPENERS
from nmt.foundation.configurations import flat
from nmt.foundation.part_limits import ConfigError, broken, refuse
from nmt.foundation.ranges import Threads
from nmt.foundation.signatures import signature

Some = TypeVar("Some", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base class of command settings; instances are created from valid configurations only.

    written: keys that name output files
    trains: whether the command trains, so that validation builds all components
    read: keys that name input files
    """

    written: ClassVar[Sequence[str]] = ("output", "attention_map", "explain")
    trains: ClassVar[bool] = False
    read: ClassVar[Sequence[str]] = (
        "input", "source", "reference", "target", "nbest", "prefix", "constraints", "gold", "links",
        "lexicon", "train", "vectors",
    )  # fmt: skip
    threads: Threads | None = None
    log: Literal["text", "json"] = "text"

    @classmethod
    def of(
        cls: type[Some],
        values: Mapping[str, Any],
        also: Sequence[ConfigError] = (),
        trained: bool = False,
    ) -> Some:
        """Validates a configuration and returns its settings.

        values: configuration as nested dictionaries and lists
        also: errors of the command line, reported together with errors of the values
        trained: whether the configuration is that of a trained model

        Raises ConfigErrors with all errors.
        """
        if values.get("input") == "-":
            values = {**values, "input": None}  # both mean standard input
        reported = {error.key for error in also}
        # With an unknown choice, such as data=txt, the keys of the default choice do not count.
        wrong = [
            error
            for error in mismatches(values, cls, everywhere=flat(values, null="null"))
            if error.key in reported or error.key.partition(".")[0] not in reported
        ]
        keys = {error.key for error in wrong}
        # Errors of unknown keys, which have no value, replace the errors of the command line.
        unknown = {error.key for error in wrong if error.value is None}
        errors = [error for error in also if error.key not in unknown]
        # An invalid top-level value, such as cell, recurs in encoder.cell and decoder.cell.
        errors += [e for e in wrong if e.key.rpartition(".")[2] not in keys - {e.key}]
        # Components are built for validation only if the command builds them anyway.
        if cls.trains:
            faulty = {error.key.partition(".")[0] for error in errors}
            # errors for incompatible combinations of values
            errors += impossible(values, faulty, trained)
        # Rules compare values, so all values must have valid types.
        if not errors:
            errors += cls(**values).conflicts()
        refuse(errors)
        return cls(**completed(values))

    def conflicts(self) -> Iterable[ConfigError]:
        """Yields an error for each invalid combination of values.

        The base class checks that an output file is neither an input nor another output.
        """
        users: dict[Path, str] = {}
        folders = {
            Path(os.path.realpath(name)): key
            for key in Settings.read
            for name in as_list(getattr(self, key, None) or [])
            if Path(name).is_dir()
        }
        for key in (*self.read, *self.written):
            for name in as_list(getattr(self, key, None) or []):
                # Different spellings of a path may name the same file.
                file = Path(os.path.realpath(name))
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
                        (
                            file.parent in folders and not name.endswith("/"),
                            key,
                            f"is in the folder that {folders.get(file.parent)} reads; choose "
                            "another folder",
                            name,
                        ),
                    )

    def idle(self) -> dict[str, str]:
        """Returns the keys without effect in this configuration, each with the reason.

        A key without effect is an error only if the command line sets it.
        """
        return {}

    @property
    def values(self) -> dict[str, Any]:
        """Configuration as nested dictionaries and lists, as stored in a checkpoint."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def settings_of(function: Callable[..., Any]) -> type[Settings]:
    """Returns a settings class whose keys are the keyword-only parameters of a function."""
    hints, defaults = signature(function)
    values = {
        name: MISSING if default is inspect.Parameter.empty else default
        for name, default in defaults.items()
    }
    keys = [(name, hints[name], field(default=values[name])) for name in values]
    return make_dataclass(function.__name__, keys, bases=(Settings,), frozen=True, kw_only=True)
