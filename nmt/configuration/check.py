"""Checks the keys and values of a configuration: against the signatures of classes and functions,
and by building the components."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from functools import partial
from typing import Any

import torch

from nmt.components import (
    GROUPS,
    NETWORK,
    Config,
    Group,
    class_of,
    classifier,
    make,
    network,
    view,
)
from nmt.data.labels import LabelSet
from nmt.foundation.parameter_types import mismatch
from nmt.foundation.part_limits import ConfigError, ConfigErrors, shown
from nmt.foundation.plugins import raised_at
from nmt.foundation.signatures import nested_of, nested_part, signature
from nmt.foundation.suggestions import unknown, unknown_keys
from nmt.model.attention import check_score
from nmt.model.uninitialized import Uninitialized
from nmt.training.objective import check_objective

ONLY_TRAINING = {"data", "sweep", "tracker", "callback"}
"""Groups that a trained model does not use. Its data files may be missing."""


def mismatches(
    node: Mapping[str, Any],
    target: Callable[..., Any],
    path: str = "",
    given: Collection[str] = (),
    everywhere: Collection[str] = (),
) -> Iterator[ConfigError]:
    """Yields the errors in the keyword arguments of a class or function.

    node: arguments by name; `_target_` is ignored
    target: class or function
    path: name of the group, if `node` is a group
    given: parameters supplied elsewhere, which are not keys
    everywhere: all dotted keys of the configuration, suggested for unknown keys
    """
    hints, defaults = signature(target, given)
    prefix = f"{path}." if path else ""
    for name, value in node.items():
        key = prefix + name
        if name == "_target_":
            continue
        if name in hints and name not in defaults and name not in given:
            remedy = f"write this parameter of {target.__name__} after * (keyword-only)"
            yield ConfigError(key, remedy)
        elif name not in defaults:
            yield from unknown_keys(key, value, defaults, everywhere)
        elif nested := nested_of(hints[name]):
            find = partial(nested_part, nested=nested, path=key)
            yield from _component_errors(value, key, find, nested.supplied, everywhere)
        elif hints[name] in (Group, Group | None) and isinstance(value, Mapping):
            yield from faults_of(name, value, everywhere)
        # The missing value ??? is reported below, with all missing keys.
        elif value != "???" and (problem := mismatch(value, hints[name], key)):
            yield ConfigError(key, problem, shown(value))
    for name, default in defaults.items():
        if node.get(name, default) in (inspect.Parameter.empty, "???"):
            key = prefix + name
            yield ConfigError(key, f"missing; set {key}=… (--help {key} explains this key)")


def _component_errors(
    node: Any,
    path: str,
    find: Callable[[Group], Callable[..., Any]],
    given: Collection[str],
    everywhere: Collection[str],
) -> Iterator[ConfigError]:
    """Yields the errors in the class and the keys of a component.

    node: configuration of the component
    path: name of its group or key
    find: function that returns the class, or raises ConfigErrors
    given: constructor arguments that are not keys
    everywhere: all dotted keys of the configuration, suggested for unknown keys
    """
    if not isinstance(node, Mapping):
        problem = "must have a _target_ (a class) and values for the parameters of this class"
        yield ConfigError(path, problem, shown(node))
        return
    try:
        yield from mismatches(node, find(node), path, given, everywhere)
    except ConfigErrors as errors:
        yield from errors.faults


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
    return list(_component_errors(node, group, find, GROUPS[group].given, everywhere))


def completed(config: Config) -> dict[str, Any]:
    """Returns a valid configuration with the defaults of missing keys added."""
    groups = {}
    for group in view(config).parts:
        # Keys without a default, or with default None, stay absent, as in the YAML files.
        unset = (None, inspect.Parameter.empty)
        _, defaults = signature(class_of(group, config[group]), GROUPS[group].given)
        set_defaults = {key: value for key, value in defaults.items() if value not in unset}
        groups[group] = {**set_defaults, **config[group]}
    return {**config, **groups}


def faults_of_building(group: str, node: Group, **supplied: Any) -> list[ConfigError]:
    """Builds the object of a group, and returns the configuration errors that its constructor
    raises.

    group: name of the configuration group, such as decoder
    node: keys and values of the group; if one of them is invalid, the object is not built, and the
        result is empty
    supplied: constructor arguments that are not configuration keys
    """
    return [] if faults_of(group, node) else raised_errors(make, {group: node}, group, **supplied)


def impossible(config: Config, faulty: Set[str], trained: bool = False) -> list[ConfigError]:
    """Returns the errors that occur when the components of a run are built with a small vocabulary.

    config: configuration of the run
    faulty: groups with known errors, which are skipped
    trained: whether the configuration is that of a trained model. Then the groups of ONLY_TRAINING
        are not built, and the attention score is not tested, which makes PyTorch import many
        modules.
    """
    # Groups without supplied arguments can be built independently.
    alone = {group for group, configured in GROUPS.items() if not configured.supplied} - faulty
    if trained:
        alone -= ONLY_TRAINING
    errors = [
        error
        for group, node in config.items()
        if group in alone and isinstance(node, Mapping)
        for error in faults_of_building(group, node)
    ]
    if not trained and "optimizer" not in faulty:
        # Optimizers raise an error for an empty list of parameters.
        parameters = [torch.nn.Parameter(torch.zeros(1))]
        errors += faults_of_building("optimizer", config["optimizer"], parameters=parameters)
    if "objective" in config and "objective" not in faulty:
        errors += raised_errors(check_objective, class_of("objective", config["objective"]))
    if faulty.isdisjoint(NETWORK):
        with torch.device("meta"), Uninitialized():  # allocates no memory for weights
            if "model" in config:
                # Incompatible sizes do not depend on the vocabulary, so 10 subwords are enough.
                build = network if trained else _build_with_tested_score
                errors += raised_errors(build, config, 10, 10)
            else:
                errors += raised_errors(classifier, config, 10, LabelSet(("a", "b"), False))
    return errors


def _build_with_tested_score(config: Config, source_size: int, target_size: int) -> None:
    """Builds a network, and tests its attention score with a small example."""
    decoder = network(config, source_size, target_size).decoder
    if decoder.attends:
        check_score(decoder.attention.score, decoder.hidden_size, decoder.memory_size)


def raised_errors(action: Callable[..., Any], *arguments: Any, **named: Any) -> list[ConfigError]:
    """Calls a function that builds or changes a component, and returns the errors that it raises.

    A user-defined constructor may raise any exception.
    """
    try:
        action(*arguments, **named)
    except ConfigErrors as errors:
        return list(errors.faults)
    except ValueError as error:
        return [ConfigError("", str(error))]
    except Exception as error:
        return [
            ConfigError(
                "", f"a class of the configuration raised an exception in {raised_at(error)[0]}"
            )
        ]
    return []
