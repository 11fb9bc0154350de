"""Functions that are imported when they are called: a command starts before its work is loaded."""

import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.extras import EXTRAS, advice


def deferred(name: str, *keys: str) -> Callable[..., Any]:
    """Returns a function that imports another one when it is called, and passes its arguments on.

    name: `module:function`
    keys: settings that are passed by name; the argument is then the settings of a command

    Raises UserError if the module needs a package of an extra that is not installed.
    """

    def call(*arguments: Any, **options: Any) -> Any:
        try:
            body = pkgutil.resolve_name(name)
        except ModuleNotFoundError as error:
            package = str(error.name).partition(".")[0]
            if package not in EXTRAS:
                raise
            raise UserError(advice(package)) from error
        if not keys:
            return body(*arguments, **options)
        [settings] = arguments
        return body(**{key: getattr(settings, key) for key in keys})

    return call


def make_callable(module: ModuleType, name: str) -> None:
    """Makes a module of a command callable as a function, such as `nmt.train(…)`.

    module: the module
    name: `module:function`, imported when it is called
    """
    function = deferred(name)

    class CallableModule(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return function(*arguments, **options)

    module.__class__ = CallableModule
