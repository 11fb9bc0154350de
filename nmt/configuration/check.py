"""Validates values against the signatures of classes and functions.

The signature is the schema: parameter names are keys, annotations are types with ranges
(nmt/foundation/ranges.py), and a default makes a key optional.
"""

import importlib
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Literal, Union

from nmt.configuration.faults import ConfigError, ConfigErrors, shown, unknown
from nmt.foundation import plugins
from nmt.foundation.ranges import Nested, Range

WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
"""Maps Python types to their names in error messages."""


def locate(target: str, package: str, key: str, base: type | None = None) -> Callable[..., Any]:
    """Returns the class or function that a `_target_` names.

    target: dotted path of the class
    package: package that must define the class; permitted plugins may define it too, but no other
        module, since configurations of downloaded checkpoints are not trusted
    key: configuration group, for messages
    base: required base class; None requires the package's BASE, or accepts any class if the package
        has no BASE

    Raises ConfigErrors if neither the package nor a permitted plugin defines the class.
    """
    module_name, name = str(target).rpartition(".")[::2]
    inside = module_name == package or module_name.startswith(package + ".")
    home = package if inside else plugins.home_of(module_name)
    problem = f"not a class of {package}"
    if home is None:
        problem += "; for a class in your own package, add --plugins PACKAGE"
    target_class: Any = None
    try:
        if home is not None:
            target_class = getattr(importlib.import_module(module_name), name)
            base = base or getattr(importlib.import_module(package), "BASE", None)
    except Exception as error:  # importing a plugin may raise any exception
        problem += f": {type(error).__name__}: {error}"
    # A name imported by a plugin module, such as torch, is not defined by the plugin.
    defined = home is not None and getattr(target_class, "__module__", "").startswith(home)
    if defined and base is not None:
        defined = inspect.isclass(target_class) and issubclass(target_class, base)
        problem = f"must be a subclass of {base.__module__}.{base.__qualname__}"
    if not defined or not callable(target_class):
        raise ConfigErrors([ConfigError(f"{key}._target_", problem, shown(target))])
    return target_class


def mismatches(
    node: Mapping[str, Any], target: Callable[..., Any], path: str = "", given: Collection[str] = ()
) -> list[ConfigError]:
    """Returns the errors in the keyword arguments of a class or function.

    node: arguments by name; `_target_` is ignored
    target: class or function
    path: name of the group, if `node` is a group
    given: parameters supplied elsewhere, which are not keys
    """
    hints, defaults = signature(target, given)
    prefix = f"{path}." if path else ""
    errors = []
    for key, value in node.items():
        if key == "_target_":
            continue
        if key not in defaults:
            errors.append(unknown(prefix + key, defaults))
        elif nested := _nested(hints[key]):
            errors += _nested_mismatches(value, nested, prefix + key)
        # The missing value ??? is reported below, with all missing keys.
        elif value != "???" and (problem := mismatch(value, hints[key], prefix + key)):
            errors.append(ConfigError(prefix + key, problem, shown(value)))
    for key, default in defaults.items():
        if node.get(key, default) in (inspect.Parameter.empty, "???"):
            errors.append(
                ConfigError(prefix + key, f"missing; give {prefix}{key}=<{expected(hints[key])}>")
            )
    return errors


def _nested_mismatches(node: Any, nested: Nested, path: str) -> list[ConfigError]:
    """Returns the errors in the class and keys of a nested component."""
    if not isinstance(node, Mapping):
        return [ConfigError(path, "must have a _target_ and the keys of its class", shown(node))]
    try:
        target = nested_part(node, nested, path)
    except ConfigErrors as error:
        return list(error.faults)
    return mismatches(node, target, path, nested.supplied)


def nested_part(node: Mapping[str, Any], nested: Nested, path: str) -> Callable[..., Any]:
    """Returns the class of a nested component.

    Raises ConfigErrors if neither nmt nor a permitted plugin defines the class.
    """
    package = nested.base.__module__.rpartition(".")[0]
    return locate(str(node.get("_target_", "")), package, path, nested.base)


def signature(
    target: Callable[..., Any], given: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the annotations and defaults of a callable's keyword parameters, each by name.

    target: class or function
    given: parameters left out of the defaults
    """
    hints: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for function in _called(target):
        annotated = typing.get_type_hints(function, include_extras=True)
        # A parameter without annotation, in a plugin, accepts any value.
        hints = dict.fromkeys(inspect.signature(function).parameters, Any) | annotated | hints
        keywords = {
            parameter.name: parameter.default
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in given
        }
        defaults |= {name: keywords[name] for name in keywords if name not in defaults}
    return hints, defaults


def _called(target: Callable[..., Any]) -> Iterator[Any]:
    """Yields the functions that receive keyword arguments: a function itself, or constructors of a
    class.

    The constructors are those of the class and of its base classes, up to the first constructor
    without a parameter **settings.
    """
    if not inspect.isclass(target):
        yield target
        return
    for owner in target.__mro__:
        if "__init__" in vars(owner):
            # A dataclass keeps the annotations of its generated constructor on the class.
            is_dataclass = "__dataclass_fields__" in vars(owner)
            function = owner if is_dataclass else vars(owner)["__init__"]
            yield function
            parameters = inspect.signature(function).parameters.values()
            if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters):
                return


def mismatch(value: Any, hint: Any, key: str = "") -> str | None:
    """Returns the reason why a value is invalid for an annotated parameter; None for a valid value.

    value: value to check
    hint: annotation of the parameter
    key: dotted key of the parameter, for the message
    """
    base, ranges = _parts(hint)
    if fits(value, base):
        outside = any(value not in bounds for bounds in ranges)
        return f"out of range, must be {expected(hint)}" if outside else None
    # Common mistakes: a list without brackets, or a number where a string is expected.
    remedy = ""
    if isinstance(value, str) and fits([], base):
        remedy = f", such as {in_list(value)}"
    elif isinstance(value, bool | int | float) and fits("", base):
        remedy = f"; as text, write {key}='\"{shown(value)}\"'"
    return f"must be {expected(hint)}{remedy}"


def in_list(text: str) -> str:
    """Returns a comma-separated string as a list in configuration syntax, for suggestions.

    Items that are not plain words are quoted.
    """
    items = [item.strip(" \"'") for item in text.removeprefix("[").removesuffix("]").split(",")]
    plain = all(re.fullmatch(r"[\w./-]+", item) for item in items)
    # JSON's double quotes are valid in Hydra's grammar.
    return f"[{','.join(items)}]" if plain else f"[{','.join(map(json.dumps, items))}]"


def fits(value: Any, hint: Any) -> bool:
    """Returns whether a value has the type and the range of an annotation."""
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if origin is Annotated:
        return mismatch(value, hint) is None
    if origin is Literal:
        return value in parts
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            return False
        if origin is list or ... in parts:
            return all(fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(fits, value, parts))
    # In Python, bool is a subclass of int.
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, int | float)
    # Other annotations, such as Any, accept every value.
    is_class = isinstance(hint, type) and hint is not Any  # Any is a class since Python 3.11
    return isinstance(value, hint) if is_class else True


def bound(target: Callable[..., Any], node: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns a class or function with the values of a group bound as keyword arguments."""
    hints, _ = signature(target)
    keys = {key: value for key, value in node.items() if key != "_target_"}
    return partial(target, **{key: _argument(value, hints.get(key)) for key, value in keys.items()})


def _argument(value: Any, hint: Any) -> Any:
    """Converts the value of a key to a constructor argument."""
    if nested := _nested(hint):
        return bound(nested_part(value, nested, ""), value)
    return as_float(value, hint)


def as_float(value: Any, hint: Any) -> Any:
    """Converts an integer to float if the annotation accepts float but not int."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_whole and _is_float(hint) else value


def _is_float(hint: Any) -> bool:
    """Returns whether an annotation accepts float but not int."""
    base, _ = _parts(hint)
    is_union = typing.get_origin(base) in (Union, types.UnionType)
    # the type without its ranges
    kinds = [_parts(kind)[0] for kind in typing.get_args(base)] if is_union else [base]
    return float in kinds and int not in kinds


def expected(hint: Any) -> str:
    """Describes an annotation in words, for messages."""
    base, ranges = _parts(hint)
    origin = typing.get_origin(base)
    parts = typing.get_args(base)
    if origin is Literal:
        words = f"one of {', '.join(map(str, parts))}"
    elif origin in (Union, types.UnionType):
        words = " or ".join(map(expected, parts))
    elif origin is tuple and ... not in parts:
        words = f"[{', '.join(map(expected, parts))}]"
    elif origin in (list, tuple):
        words = f"a list, each {expected(parts[0])}"
    else:
        words = WORDS.get(base, str(base))
    bounds = [str(bound) for bound in ranges if str(bound) != "value"]
    return f"{words} with {' and '.join(bounds)}" if bounds else words


def _nested(hint: Any) -> Nested | None:
    """Returns the nested component of an annotation; None for plain values."""
    extras = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((extra for extra in extras if isinstance(extra, Nested)), None)


def _parts(hint: Any) -> tuple[Any, list[Range]]:
    """Splits an annotation into its type and its ranges."""
    if typing.get_origin(hint) is not Annotated:
        return hint, []
    base, *extras = typing.get_args(hint)
    return base, [extra for extra in extras if isinstance(extra, Range)]
