"""Type checks of the tests by beartype, which accept whole numbers for float parameters."""

import contextlib
from functools import wraps

from beartype import BeartypeConf, beartype
from jaxtyping import config

execute = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function):
    """The function with executed annotations. They are read at the first call: most functions of a test run are never called."""
    executed = None

    @wraps(function)
    def checked(*arguments, **keywords):
        nonlocal executed
        if executed is None:
            executed = execute(function)
        return executed(*arguments, **keywords)

    return checked


@contextlib.contextmanager
def unchecked(off=True):
    """Annotations are not executed; with off=False, they are."""
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", off)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)
