"""Checks whether values match the signatures of classes and functions, and whether the components
of a configuration can be built."""

import difflib
import inspect
import types
import typing
from collections.abc import Callable, Collection, Mapping, Set
from functools import partial
from typing import Annotated, Any, Literal, Union

import torch
from torch import nn

from nmt.components import (
    GROUPS,
    NETWORK,
    Config,
    Group,
    class_of,
    classifier,
    make,
    network,
    parameters,
    view,
)
from nmt.configuration.faults import unknown
from nmt.data.labels import LabelSet
from nmt.foundation.errors import in_list
from nmt.foundation.part_limits import ConfigError, ConfigErrors, shown
from nmt.foundation.plugins import raised_at
from nmt.foundation.signatures import nested_of, nested_part, signature, type_and_ranges
from nmt.foundation.synonyms import SYNONYMS
from nmt.model.uninitialized import Uninitialized

WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Group: "a choice",
}
"""Maps Python types to their names in error messages."""


def mismatches(
    node: Mapping[str, Any],
    target: Callable[..., Any],
    path: str = "",
    given: Collection[str] = (),
    everywhere: Collection[str] = (),
) -> list[ConfigError]:
    """Returns the errors in the keyword arguments of a class or function.

    node: arguments by name; `_target_` is ignored
    target: class or function
    path: name of the group, if `node` is a group
    given: parameters supplied elsewhere, which are not keys
    everywhere: all dotted keys of the configuration, suggested for unknown keys
    """
    hints, defaults = signature(target, given)
    prefix = f"{path}." if path else ""
    errors = []
    for key, value in node.items():
        if key == "_target_":
            continue
        if key in hints and key not in defaults and key not in given:
            remedy = f"write this parameter of {target.__name__} after * (keyword-only)"
            errors.append(ConfigError(prefix + key, remedy))
        elif key not in defaults:
            # A group of another toolkit may contain keys that have a counterpart in nmt, such as
            # training.batch_size.
            is_typo = difflib.get_close_matches(key, defaults, 1, 0.8)
            node_keys = value if isinstance(value, dict) and not is_typo else ()
            elsewhere = {name for name in everywhere if not name.startswith(f"{prefix}{key}.")}
            inner = [name for name in node_keys if elsewhere.intersection(SYNONYMS.get(name, ()))]
            for name in inner:
                errors.append(unknown(f"{prefix}{key}.{name}", (), everywhere))
            if not inner:
                errors.append(unknown(prefix + key, defaults, everywhere))
        elif nested := nested_of(hints[key]):
            find = partial(nested_part, nested=nested, path=prefix + key)
            errors += _component_errors(value, prefix + key, find, nested.supplied, everywhere)
        elif hints[key] in (Group, Group | None) and isinstance(value, Mapping):
            errors += faults_of(key, value, everywhere)
        # The missing value ??? is reported below, with all missing keys.
        elif value != "???" and (problem := mismatch(value, hints[key], prefix + key)):
            errors.append(ConfigError(prefix + key, problem, shown(value)))
    for key, default in defaults.items():
        if node.get(key, default) in (inspect.Parameter.empty, "???"):
            errors.append(
                ConfigError(prefix + key, f"missing; give {prefix}{key}=<{expected(hints[key])}>")
            )
    return errors


def _component_errors(
    node: Any,
    path: str,
    find: Callable[[Group], Callable[..., Any]],
    given: Collection[str],
    everywhere: Collection[str],
) -> list[ConfigError]:
    """Returns the errors in the class and the keys of a component.

    node: configuration of the component
    path: name of its group or key
    find: function that returns the class, or raises ConfigErrors
    given: constructor arguments that are not keys
    everywhere: all dotted keys of the configuration, suggested for unknown keys
    """
    if not isinstance(node, Mapping):
        problem = "must have a _target_ (a class) and values for the parameters of this class"
        return [ConfigError(path, problem, shown(node))]
    try:
        return mismatches(node, find(node), path, given, everywhere)
    except ConfigErrors as errors:
        return list(errors.faults)


def mismatch(value: Any, hint: Any, key: str = "") -> str | None:
    """Returns the reason why a value is invalid for an annotated parameter; None for a valid value.

    value: value to check
    hint: annotation of the parameter
    key: dotted key of the parameter, for the message
    """
    base, ranges = type_and_ranges(hint)
    if fits(value, base):
        outside = any(value not in bounds for bounds in ranges)
        return f"out of range, must be {expected(hint)}" if outside else None
    # Common mistakes: a list without brackets, or a number where a string is expected.
    remedy = ""
    if isinstance(value, str) and fits([], base):
        remedy = f", such as {in_list(value)}"
    elif isinstance(value, bool | int | float) and fits("", base):
        remedy = f"; for a text, put the value in quotes twice: {key}='\"TEXT\"'"
    return f"must be {expected(hint)}{remedy}"


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
    if origin is Mapping:
        return isinstance(value, Mapping)
    # In Python, bool is a subclass of int.
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, int | float)
    # Other annotations accept every value, and Any, which is a class since Python 3.11.
    return not isinstance(hint, type) or hint is Any or isinstance(value, hint)


def expected(hint: Any) -> str:
    """Describes an annotation in words, for messages."""
    base, ranges = type_and_ranges(hint)
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


def faults_of(group: str, node: Group, everywhere: Collection[str] = ()) -> list[ConfigError]:
    """Returns the errors in the keys and values of one configuration group.

    group: name of the configuration group, such as decoder
    node: keys and values of the group
    everywhere: all dotted keys of the configuration, suggested for unknown keys
    """
    if group == "attention" and "_target_" not in node:  # attention=none has no class
        return [unknown(f"attention.{key}", []) for key in node]
    if group == "translation":  # null selects the trained model's value
        node = {key: value for key, value in node.items() if value is not None}
    find = partial(class_of, group)
    return _component_errors(node, group, find, GROUPS[group].given, everywhere)


def completed(config: Config) -> dict[str, Any]:
    """Returns a valid configuration with the defaults of missing keys added."""
    groups = {}
    for group in view(config).parts:
        # Keys without a default, or with default None, stay absent, as in the YAML files.
        unset = (None, inspect.Parameter.empty)
        keys = parameters(group, config[group]).items()
        defaults = {key: default for key, default in keys if default not in unset}
        groups[group] = {**defaults, **config[group]}
    return {**config, **groups}


def faults_of_building(group: str, node: Group, **supplied: Any) -> list[ConfigError]:
    """Returns the configuration errors for an exception raised by the constructor of a group's
    class.

    group: name of the configuration group, such as decoder
    node: keys and values of the group; if a key or value is invalid, the object is not built
    supplied: constructor arguments that are not configuration keys
    """
    return [] if faults_of(group, node) else _raised(make, {group: node}, group, **supplied)


def impossible(config: Config, faulty: Set[str]) -> list[ConfigError]:
    """Returns the errors that occur when the components of a run are built with a small vocabulary.

    config: configuration of the run
    faulty: groups with known errors, which are skipped
    """
    # Groups without supplied arguments can be built independently.
    alone = {group for group, configured in GROUPS.items() if not configured.supplied} - faulty
    errors: list[ConfigError] = []
    for group, node in config.items():
        if group in alone and isinstance(node, Mapping):
            errors += faults_of_building(group, node)
    if "optimizer" not in faulty:
        # Optimizers raise an error for an empty list of parameters.
        parameters = [nn.Parameter(torch.zeros(1))]
        errors += faults_of_building("optimizer", config["optimizer"], parameters=parameters)
    if "objective" in config and "objective" not in faulty:
        errors += _raised(check_objective, class_of("objective", config["objective"]))
    if faulty.isdisjoint(NETWORK):
        with torch.device("meta"), Uninitialized():  # allocates no memory for weights
            if "model" in config:
                # Incompatible sizes do not depend on the vocabulary, so 10 subwords are enough.
                errors += _raised(network, config, 10, 10)
            else:
                errors += _raised(classifier, config, 10, LabelSet(("a", "b"), False))
    return errors


def check_objective(objective: Callable[..., Any]) -> None:
    """Raises ValueError if a training objective cannot be called with the trainer's arguments."""
    arguments = ("self", "network", "batch", "update", "total")
    try:
        inspect.signature(objective.__call__).bind(*arguments)  # type: ignore[operator]
    except TypeError as error:
        raise ValueError(
            f"objective={objective.__name__}: `__call__` must have the parameters "
            f"{', '.join(arguments)} ({error})"
        ) from error


def _raised(action: Callable[..., Any], *arguments: Any, **named: Any) -> list[ConfigError]:
    """Calls a function that builds a component, and returns the error if the component cannot be
    built. A user-defined constructor may raise any exception."""
    try:
        action(*arguments, **named)
    except ConfigErrors as errors:
        return list(errors.faults)
    except ValueError as error:
        return [ConfigError("", str(error))]
    except Exception as error:
        return [ConfigError("", f"a component cannot be created: {raised_at(error)[0]}")]
    return []
