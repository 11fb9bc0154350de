"""Checks of values against the types and ranges in annotations of parameters (signatures.py), and
descriptions of annotations for messages."""

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from nmt.foundation.errors import in_list
from nmt.foundation.part_limits import ConfigError, refuse, shown
from nmt.foundation.signatures import signature, type_and_ranges

WORDS: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    Mapping[str, Any]: "a choice",
}
"""Maps types to their names in error messages. A mapping is a choice of a configuration group."""


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
    elif (
        isinstance(value, list | tuple)
        and all(isinstance(item, int | float | str) and '"' not in str(item) for item in value)
        and fits([*map(str, value)], base)
    ):
        items = ",".join(f'"{item}"' for item in value)
        remedy = f"; put each item in quotes: {key}='[{items}]'"
    elif isinstance(value, list | tuple) and fits("", base):
        remedy = ", not a list"
    return f"must be {expected(hint)}{remedy}"


def check_arguments(group: str, target: type, /, **arguments: Any) -> None:
    """Checks arguments of a constructor that Python code calls, as the command line is checked.

    group: configuration group of the class, for messages
    target: class
    arguments: keyword arguments of its constructor

    Raises ConfigErrors if an argument is invalid.
    """
    hints, _ = signature(target)
    problems = {key: mismatch(value, hints[key]) for key, value in arguments.items()}
    refuse(
        ConfigError(f"{group}.{key}", problem, shown(arguments[key]))
        for key, problem in problems.items()
        if problem
    )


def fits(value: Any, hint: Any) -> bool:
    """Returns whether a value has the type, and lies in the ranges, that an annotation requires."""
    origin = get_origin(hint)
    parts = get_args(hint)
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
    if hint in (int, float):
        # In Python, bool is a subclass of int.
        return isinstance(value, int | hint) and not isinstance(value, bool)
    kind = origin if origin in (Mapping, dict) else hint
    # Other annotations accept every value, and Any, which is a class since Python 3.11.
    return not isinstance(kind, type) or kind is Any or isinstance(value, kind)


def expected(hint: Any) -> str:
    """Describes an annotation in words, for messages."""
    base, ranges = type_and_ranges(hint)
    origin = get_origin(base)
    parts = get_args(base)
    if origin is Literal:
        words = f"one of {', '.join(map(str, parts))}"
    elif origin in (Union, types.UnionType):
        words = " or ".join(map(expected, parts))
    elif origin is tuple and ... not in parts:
        words = f"[{', '.join(map(expected, parts))}]"
    elif origin is dict:
        words = "names with values, as in {NAME: 'TEXT'}"
    elif origin in (list, tuple):
        words = f"a list, each {expected(parts[0])}"
    else:
        words = WORDS.get(base, str(base))
    bounds = [str(bound) for bound in ranges if str(bound) != "value"]
    return f"{words} with {' and '.join(bounds)}" if bounds else words
