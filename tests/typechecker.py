"""Type checks of the tests by jaxtyping and beartype, which accept whole numbers for float parameters."""

import contextlib
import dataclasses
import inspect
from collections import Counter
from functools import wraps

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import config, jaxtyped

CALLS = 2
"""Number of calls of a function that are checked in each test. Checking all calls would take half of the time of many tests."""

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_calls = Counter()
"""Number of checked calls of each function in the present test. A function inside another function counts as one, though each call
of the outer function makes another one."""


def begin_test():
    """Lets every function be checked again."""
    _calls.clear()


def checked_at_first(function=None, *, typechecker):
    """Replaces jaxtyping.jaxtyped: returns a function, or a dataclass, whose annotations are checked in its first calls of each test.

    Annotations are read at the first call, because most functions of a test run are never called.
    """
    if function is None:
        return lambda function: checked_at_first(function, typechecker=typechecker)
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and inspect.isfunction(function.__init__):
            function.__init__ = checked_at_first(function.__init__, typechecker=typechecker)
        return function
    checked = None

    @wraps(function)
    def limited(*arguments, **keywords):
        nonlocal checked
        if config.jaxtyping_disable or _calls[function.__code__] == CALLS:
            return function(*arguments, **keywords)
        _calls[function.__code__] += 1
        checked = checked or jaxtyped(function, typechecker=typechecker)
        return checked(*arguments, **keywords)

    return limited


jaxtyping.jaxtyped = checked_at_first  # the import hook of jaxtyping decorates with this name


@contextlib.contextmanager
def unchecked(off=True):
    """Annotations are not executed; with off=False, they are."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", off)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)
