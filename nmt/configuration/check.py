"""Checks a configuration against the signatures of what it configures, and reports every fault at once.

A signature is the schema: parameter names are the keys, annotations the types (see nmt/ranges.py for ranges), defaults
make a key optional.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Union

from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Range


def locate(target: str, package: str, key: str) -> Callable[..., Any]:
    """The class or function that `_target_` names. Only what `package` itself defines is allowed, wherever the config
    comes from: a downloaded checkpoint cannot name anything else.

    Raises UserError otherwise.
    """
    module_name, _, name = str(target).rpartition(".")
    inside = module_name == package or module_name.startswith(package + ".")
    try:
        found = getattr(importlib.import_module(module_name), name) if inside else None
    except (ImportError, AttributeError):
        found = None
    if not callable(found) or not getattr(found, "__module__", "").startswith(package):
        raise UserError(f"{key}._target_={target}: not a class of {package}")
    return found


def faults(node: Mapping[str, Any], target: Callable[..., Any], path: str, given: Collection[str] = ()) -> list[str]:
    """What is wrong with `node` as keyword arguments of `target`; parameters in `given` are supplied elsewhere."""
    function = target.__init__ if inspect.isclass(target) else target
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self" and name not in given and parameter.kind is parameter.KEYWORD_ONLY
    }
    found = []
    for key, value in node.items():
        if key == "_target_":
            continue
        if key not in parameters:
            found.append(unknown(f"{path}.{key}", key, parameters))
        elif value == "???":
            found.append(_missing(f"{path}.{key}", hints[key]))
        else:
            problem = mismatch(value, hints[key])
            if problem:
                found.append(f"{path}.{key}={_shown(value)}: {problem}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in node:
            found.append(_missing(f"{path}.{name}", hints[name]))
    return found


def _missing(path: str, hint: Any) -> str:
    return f"{path}: missing; give {path}=<{expected(hint)}>"


def unknown(path: str, key: str, known: Collection[str]) -> str:
    """The message for a key that does not exist: the nearest one that does, and all of them."""
    if not known:
        return f"{path}: no such key (this choice has no settings)"
    near = difflib.get_close_matches(key, known, 1, 0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{path}: no such key{hint} (there are: {', '.join(sorted(known))})"


def mismatch(value: Any, hint: Any) -> str | None:
    """What is wrong with a value of an annotated parameter, None if nothing."""
    base, *extras = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if not _is_a(value, base):
        return f"must be {expected(hint)}"
    for extra in extras:
        if isinstance(extra, Range) and value not in extra:
            return f"out of range, must be {expected(hint)}"
    return None


def expected(hint: Any) -> str:
    """A hint in words."""
    base, *extras = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    origin = typing.get_origin(base)
    if origin is Literal:
        words = "one of " + ", ".join(map(str, typing.get_args(base)))
    elif origin in (Union, types.UnionType):
        words = " or ".join(expected(part) for part in typing.get_args(base))
    else:
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}.get(
            base, f"a list, each {expected(typing.get_args(base)[0])}" if origin in (list, tuple) else str(base)
        )
    ranges = [str(extra) for extra in extras if isinstance(extra, Range) and str(extra) != "value"]
    return words + (f" with {' and '.join(ranges)}" if ranges else "")


def _is_a(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Annotated:
        return mismatch(value, hint) is None
    if origin is Literal:
        return value in typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_is_a(value, part) for part in typing.get_args(hint))
    if origin in (list, tuple):
        inner = typing.get_args(hint)[0]
        return isinstance(value, list | tuple) and all(_is_a(item, inner) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value) or "(nothing)"
