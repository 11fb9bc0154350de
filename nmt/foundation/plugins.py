"""Plugins: packages outside nmt whose classes a configuration may name in `_target_`.

A plugin must be permitted by the user; a model file cannot permit plugins. There are three ways:

- install a package with an entry point in the group `nmt.plugins`;
- name the package on the command line: --plugins PACKAGE[,…];
- name the package in Python: nmt.load(…, plugins=[PACKAGE]).

A plugin is imported when a configuration first names one of its classes. Its YAML files are in
PACKAGE/conf/GROUP/NAME.yaml.
"""

import functools
import importlib.metadata
import importlib.util
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from nmt.foundation.configurations import flat
from nmt.foundation.errors import UsageError, first_line

_of_process: list[str] = []
_of_context: ContextVar[tuple[str, ...]] = ContextVar("plugins", default=())


@functools.cache
def installed() -> tuple[str, ...]:
    """Returns the names of the packages with an entry point in the group `nmt.plugins`."""
    points = importlib.metadata.entry_points(group="nmt.plugins")
    return tuple(sorted({point.module.partition(".")[0] for point in points}))


def named() -> tuple[str, ...]:
    """Returns the plugins permitted by the option `--plugins` or by `with permitting(…)`."""
    return tuple(dict.fromkeys([*_of_process, *_of_context.get()]))


def permitted() -> tuple[str, ...]:
    """Returns the names of all permitted plugins."""
    return tuple(dict.fromkeys([*installed(), *named()]))


def permit(packages: Iterable[str]) -> None:
    """Permits plugins for the whole process. Raises UserError if a package is not found."""
    _of_process.extend(_existing(packages))


@contextmanager
def permitting(packages: Iterable[str]) -> Iterator[None]:
    """Permits plugins within a `with` block. Raises UserError if a package is not found."""
    token = _of_context.set((*_of_context.get(), *_existing(packages)))
    try:
        yield
    finally:
        _of_context.reset(token)


def _existing(packages: Iterable[str]) -> list[str]:
    packages = [packages] if isinstance(packages, str) else list(packages)
    for package in packages:
        if not str(package).isidentifier() or not _is_found(package):
            raise UsageError(
                f"plugins={package}: package not found; give the name (not the path) of an "
                "installed package, of a package on PYTHONPATH or, with python -m nmt.…, of one in "
                "the current folder"
            )
    return packages


def _is_found(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # the module __main__ of a script
        return False


def folders() -> tuple[str, ...]:
    """Returns the folder PACKAGE/conf of each permitted plugin in which this folder exists."""
    specs = map(importlib.util.find_spec, permitted())  # does not import a top-level package
    places = [place for spec in specs if spec for place in spec.submodule_search_locations or ()]
    return tuple(str(Path(p, "conf").resolve()) for p in places if Path(p, "conf").is_dir())


def home_of(module: str) -> str | None:
    """Returns the permitted plugin that contains a module; None if no permitted plugin contains the
    module.
    """
    package = module.partition(".")[0]
    return package if package in permitted() else None


def needed(config: Mapping[str, Any]) -> list[str]:
    """Returns the packages outside nmt that a configuration names in `_target_`."""
    values = flat(config).items()
    targets = [str(value) for key, value in values if key.endswith("._target_")]
    return sorted({target.partition(".")[0] for target in targets} - {"nmt"})


def refuse_missing(meta: Mapping[str, Any], place: object) -> None:
    """Raises UserError if a model needs a plugin that is not permitted.

    meta: checkpoint header
    place: name of the model file, for the message
    """
    recorded = meta.get("plugins")
    names = recorded if isinstance(recorded, list) else []
    missing = ",".join(sorted({*map(str, names)} - {*permitted()}))
    if missing:
        raise UsageError(
            f"{place}: needs the plugin {missing}, whose code is not run without permission. "
            f"If you trust this code, add --plugins {missing} to the command, or "
            f"plugins={missing.split(',')} in Python"
        )


TESTED = ("nmt.model.attention", "nmt.model.decoder")
"""Packages with the base classes of the classes that `nmt.check_attention` tests."""


def tests() -> dict[type, str]:
    """Returns, for each decoder and score function in the imported modules of permitted plugins,
    the argument FILE.py:NAME with which `nmt.check_attention` checks it."""
    modules = [module for name, module in list(sys.modules.items()) if home_of(name)]
    classes = [value for m in modules for value in vars(m).values() if isinstance(value, type)]
    return {
        kind: f"{sys.modules[kind.__module__].__file__}:{kind.__name__}"
        for kind in classes
        if home_of(kind.__module__) and any(k.__module__.startswith(TESTED) for k in kind.__mro__)
    }


def advice(arguments: Iterable[str]) -> str:
    """Returns the advice to test classes of plugins, for the end of a message; empty without
    classes.

    arguments: arguments of `nmt.check_attention`
    """
    words = " ".join(arguments)
    return f"; to test your classes: python -m nmt.check_attention {words}" if words else ""


def raised_at(error: Exception) -> tuple[str, type | None]:
    """Returns the description of an exception, and the plugin class whose method raised it.

    The description consists of the message of the exception, and the function, file and line that
    raised it. The line is the innermost line of a plugin in the traceback. If the traceback
    contains no plugin, the line is the innermost line outside torch, and the class is None.
    """
    all_calls = list(traceback.walk_tb(error.__traceback__))
    calls = [
        (frame, line)
        for frame, line in all_calls
        if frame.f_globals.get("__name__", "").partition(".")[0] != "torch"
    ]
    plugin_calls = [call for call in calls if home_of(call[0].f_globals.get("__name__", ""))]
    frame, line = (plugin_calls or calls or all_calls)[-1]
    code = frame.f_code
    text = linecache.getline(code.co_filename, line).strip()
    problem = f"{type(error).__name__}: {first_line(error)}"
    place = f"{code.co_qualname}: {problem} ({code.co_filename}:{line}: {text})"
    return place, type(frame.f_locals.get("self")) if plugin_calls else None


def problem_of(error: Exception) -> str | None:
    """Returns the message about an unexpected exception while plugins are in use; None if no plugin
    is imported, because the bug is then in nmt itself."""
    used = [package for package in permitted() if package in sys.modules]
    if not used:
        return None
    place, owner = raised_at(error)
    if owner is None:
        place += (
            f"; classes of {', '.join(used)} may change tensors in place or return wrong values"
        )
    arguments = [name for kind, name in tests().items() if owner is None or kind is owner]
    return place + advice(arguments)
