"""Imports of functions on their first call, so that commands start before heavy modules load."""

import gc
import inspect
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.extras import EXTRAS, advice


def imported(name: str) -> Callable[..., Any]:
    """Imports and returns the function with the name `module:function`.

    Raises UserError if the module needs an optional package that is not installed.
    """
    try:
        return pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        # A missing module of nmt itself is a bug, so its traceback is kept.
        if package not in EXTRAS:
            raise
        raise UserError(advice(package)) from error


def with_settings(name: str) -> Callable[[Any], Any]:
    """Returns a function that imports another function when it is called and passes command
    settings to it.

    name: `module:function`; the function receives the settings that its parameters name, or all
        settings if it has a parameter `settings`
    """

    def call(settings: Any) -> Any:
        function = imported(name)
        resume_collections()
        names = inspect.signature(function).parameters
        if "settings" in names:
            return function(settings)
        return function(**{name: getattr(settings, name) for name in names})

    return call


def resume_collections() -> None:
    """Enables the garbage collector, which commands disable during their imports, for objects that
    are created from now on. Imported modules would cost time in each collection."""
    gc.freeze()
    gc.enable()


def make_callable(module: ModuleType, name: str) -> None:
    """Makes the module of a command callable, as in `nmt.train(…)`.

    module: module object to change
    name: `module:function`, imported and called when the module is called
    """

    class CallableModule(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return imported(name)(*arguments, **options)

    module.__class__ = CallableModule
