"""Functions that are imported when they are called: a command starts before its work is loaded."""

import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.extras import EXTRAS, advice


def imported(name: str) -> Callable[..., Any]:
    """Imports a function, `module:function`.

    Raises UserError if the module needs a package of an extra that is not installed.
    """
    try:
        return pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        # A missing module of nmt itself is an error of the code.
        if package not in EXTRAS:
            raise
        raise UserError(advice(package)) from error


def with_settings(name: str) -> Callable[[Any], Any]:
    """Returns a function of the settings of a command, which imports another one and calls it.

    name: `module:function`; it receives the settings that its parameters name, or all settings if
        its parameter is called `settings`
    """

    def call(settings: Any) -> Any:
        function = imported(name)
        names = inspect.signature(function).parameters
        if "settings" in names:
            return function(settings)
        return function(**{name: getattr(settings, name) for name in names})

    return call


def make_callable(module: ModuleType, name: str) -> None:
    """Makes a module of a command callable as a function, such as `nmt.train(…)`.

    module: the module
    name: `module:function`, imported when it is called
    """

    class CallableModule(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return imported(name)(*arguments, **options)

    module.__class__ = CallableModule
