"""Compares values with the signature of what they configure, and reports every fault at once.

A signature is the schema: parameter names are the keys, annotations the types (see nmt/foundation/ranges.py for ranges),
defaults make a key optional.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Union

from nmt.configuration.faults import ConfigError, shown, unknown
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Range


def locate(target: str, package: str, key: str) -> Callable[..., Any]:
    """The class or function that `_target_` names. Only what `package` itself defines is allowed, also when the config
    comes from a downloaded checkpoint.

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


def mismatches(
    node: Mapping[str, Any], target: Callable[..., Any], path: str = "", given: Collection[str] = ()
) -> list[ConfigError]:
    """What is wrong with `node` as keyword arguments of `target`; parameters in `given` are supplied elsewhere. `path`:
    the name of the group, if `node` is a group."""
    hints, parameters = _signature(target, given)
    found = []
    for key, value in node.items():
        whole = f"{path}.{key}" if path else key
        if key == "_target_":
            continue
        if key not in parameters:
            found.append(unknown(whole, parameters))
        elif value == "???":
            found.append(_missing(whole, hints[key]))
        else:
            problem = mismatch(value, hints[key])
            if problem:
                found.append(ConfigError(whole, problem, shown(value)))
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in node:
            found.append(_missing(f"{path}.{name}" if path else name, hints[name]))
    return found


def _signature(
    target: Callable[..., Any], given: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Annotations and keyword parameters by name."""
    record = dataclasses.is_dataclass(target)
    function = target.__init__ if inspect.isclass(target) and not record else target
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self" and name not in given and parameter.kind is parameter.KEYWORD_ONLY
    }
    return hints, parameters


def _missing(key: str, hint: Any) -> ConfigError:
    return ConfigError(key, f"missing; give {key}=<{expected(hint)}>")


def mismatch(value: Any, hint: Any) -> str | None:
    """What is wrong with a value of an annotated parameter, None if nothing."""
    base, *extras = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    if not _is_a(value, base):
        lists = [
            part for part in (typing.get_args(base) or (base,)) if typing.get_origin(part) is list
        ]
        example = (
            f", such as [{value}]"
            if isinstance(value, str) and (lists or typing.get_origin(base) is list)
            else ""
        )
        if isinstance(value, bool | int | float) and _is_a("", base):
            example = f"; as text it is written '\"{shown(value)}\"'"
        return f"must be {expected(hint)}{example}"
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
    elif origin is tuple and ... not in typing.get_args(base):
        words = f"[{', '.join(expected(part) for part in typing.get_args(base))}]"
    elif origin in (Union, types.UnionType):
        words = " or ".join(expected(part) for part in typing.get_args(base))
    else:
        words = {
            int: "a whole number",
            float: "a number",
            bool: "true or false",
            str: "text",
            type(None): "null",
        }.get(
            base,
            f"a list, each {expected(typing.get_args(base)[0])}"
            if origin in (list, tuple)
            else str(base),
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
    if origin is tuple and ... not in (parts := typing.get_args(hint)):
        one_each = isinstance(value, list | tuple) and len(value) == len(parts)
        return one_each and all(_is_a(item, part) for item, part in zip(value, parts, strict=True))
    if origin in (list, tuple):
        inner = typing.get_args(hint)[0]
        return isinstance(value, list | tuple) and all(_is_a(item, inner) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) else True
