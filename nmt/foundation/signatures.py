"""Classes that a configuration names, and their signatures as the schema of their settings.

Each keyword-only parameter of a constructor is a key. The annotation gives the key's type and
permitted range (nmt/foundation/ranges.py). A default value makes the key optional.
"""

import importlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from nmt.foundation import plugins
from nmt.foundation.part_limits import ConfigError, ConfigErrors, shown
from nmt.foundation.ranges import Nested, Range


def locate(
    target: str,
    package: str,
    key: str,
    base: type | None = None,
    *,
    accepts_functions: bool = False,
) -> Callable[..., Any]:
    """Returns the class or function that a `_target_` names.

    target: dotted path of the class
    package: package that must define the class, unless a permitted plugin defines it; other modules
        are refused, since configurations of downloaded checkpoints are not trusted
    key: configuration group, for messages
    base: required base class; None requires the class in the package's variable BASE, if any
    accepts_functions: whether functions are accepted besides classes

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
    is_accepted = inspect.isclass(target_class) or (accepts_functions and callable(target_class))
    if not defined or not is_accepted:
        raise ConfigErrors([ConfigError(f"{key}._target_", problem, shown(target))])
    return target_class


def nested_part(node: Mapping[str, Any], nested: Nested, path: str) -> Callable[..., Any]:
    """Returns the class of a component that is the argument of another component.

    node: keys of the component; `_target_` names the class
    nested: annotation of the other component's constructor parameter
    path: dotted key of the component, for messages

    Raises ConfigErrors if neither nmt nor a permitted plugin defines the class.
    """
    package = nested.base.__module__.rpartition(".")[0]
    return locate(str(node.get("_target_", "")), package, path, nested.base)


def signature(
    target: Callable[..., Any], given: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns two dictionaries by parameter name: the annotations of a callable's parameters, and
    the defaults of its keyword-only parameters.

    target: class or function
    given: names of parameters that are not configuration keys; their defaults are not returned
    """
    hints: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for function in _called(target):
        parameters, annotated = _parameters(function)
        # A parameter without annotation, in a plugin, accepts any value.
        hints = {name: annotated.get(name, Any) for name in parameters} | hints
        defaults |= {
            name: parameter.default
            for name, parameter in parameters.items()
            if parameter.kind is parameter.KEYWORD_ONLY and name not in {*given, *defaults}
        }
    return hints, defaults


@cache
def _parameters(function: Any) -> tuple[Mapping[str, inspect.Parameter], Mapping[str, Any]]:
    """Returns the parameters of a function, and their annotations, by name."""
    annotations = get_type_hints(function, include_extras=True)
    return inspect.signature(function).parameters, annotations


def _called(target: Callable[..., Any]) -> Iterator[Any]:
    """Yields the functions that receive the keyword arguments of a call of `target`.

    For a function, this is the function itself. For a class, it is the constructor, followed by
    those of the base classes as long as each constructor passes on arguments as **settings.
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
            parameters, _ = _parameters(function)
            kinds = {parameter.kind for parameter in parameters.values()}
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                return


def bound(target: Callable[..., Any], node: Mapping[str, Any]) -> Callable[..., Any]:
    """Returns a class or function with the values of a configuration group bound as keyword
    arguments (functools.partial)."""
    hints, _ = signature(target)
    values = {
        key: _argument(value, hints.get(key)) for key, value in node.items() if key != "_target_"
    }
    return partial(target, **values)


def _argument(value: Any, hint: Any) -> Any:
    """Converts the value of a key to the type of its constructor parameter.

    The configuration of a component becomes a function that builds the component. An integer
    becomes a float if the parameter accepts only float.
    """
    if nested := nested_of(hint):
        return bound(nested_part(value, nested, ""), value)
    return as_float(value, hint)


def as_float(value: Any, hint: Any) -> Any:
    """Converts an integer to float if the annotation accepts float but not int."""
    base, _ = type_and_ranges(hint)
    # the type itself, or the members of a union, without their ranges
    kinds = [type_and_ranges(kind)[0] for kind in get_args(base) or [base]]
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if is_whole and float in kinds and int not in kinds else value


def nested_of(hint: Any) -> Nested | None:
    """Returns the marker `Nested` in the annotation of a parameter that receives a component; None
    for other annotations."""
    return next((extra for extra in get_args(hint) if isinstance(extra, Nested)), None)


def type_and_ranges(hint: Any) -> tuple[Any, list[Range]]:
    """Splits the annotation of a parameter into the type and the ranges of valid values."""
    if get_origin(hint) is not Annotated:
        return hint, []
    base, *extras = get_args(hint)
    return base, [extra for extra in extras if isinstance(extra, Range)]
