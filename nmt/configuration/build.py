"""Builds objects with matching sizes from configuration groups."""

import importlib
import inspect
import pkgutil
import traceback
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from nmt.configuration.check import bound, locate, mismatches, signature
from nmt.configuration.faults import ConfigError, ConfigErrors, unknown
from nmt.data.labels import LabelSet
from nmt.foundation.part_limits import PartGroup, RunView
from nmt.foundation.ranges import Size, Width
from nmt.model import GROUPS as MODEL_GROUPS
from nmt.model.construction import translation_model
from nmt.model.seq2label import Seq2Label
from nmt.model.seq2seq import Seq2Seq
from nmt.model.uninitialized import Uninitialized
from nmt.tokenizer.columns import Columns

Config = Mapping[str, Any]
Group = Mapping[str, Any]
"""Type of configuration groups: keys and values, as a mapping."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes shared by all choices of encoder, decoder and tokenizer.

    encoder: hidden units per direction
    decoder: hidden units; None uses the decoder's own default
    readout: number of features from which the output layer predicts tokens
    vocabulary: number of subwords
    """

    encoder: Width
    decoder: Width | None = None
    readout: Width | None = None
    vocabulary: Size


PACKAGES = (
    "nmt.data", "nmt.inference", "nmt.metric", "nmt.model", "nmt.search", "nmt.sweep",
    "nmt.tokenizer", "nmt.training",
)  # fmt: skip
"""Packages and modules that declare configuration groups in their dictionary GROUPS."""
GROUPS: dict[str, PartGroup] = {"sizes": PartGroup(f"{__name__}.{Sizes.__qualname__}")}
"""Class or package that each configuration group selects from, for the groups of all commands."""
for package in PACKAGES:
    GROUPS |= importlib.import_module(package).GROUPS
NETWORK = ("cell", *MODEL_GROUPS)
"""Configuration groups and keys that determine the architecture of the network."""


def class_of(group: str, node: Group) -> Callable[..., Any]:
    """Returns the class that a configuration group selects.

    Raises ConfigErrors if the class is not in the group's package or in a permitted plugin.
    """
    configured = GROUPS[group]
    target = str(node.get("_target_", ""))
    if not configured.is_class:
        return locate(target, configured.by, group)
    base: type = pkgutil.resolve_name(configured.by)
    return locate(target, base.__module__, group, base) if target else base


def make(config: Config, group: str, **supplied: Any) -> Any:
    """Builds the object that a configuration group describes.

    config: validated configuration, as nested dictionaries
    group: name of the configuration group, such as decoder
    supplied: constructor arguments that are not configuration keys
    """
    node = config[group]
    return bound(class_of(group, node), node)(**supplied)


def faults_of(group: str, node: Group) -> list[ConfigError]:
    """Returns the errors in the keys and values of one configuration group."""
    if group == "attention" and "_target_" not in node:  # attention=none has no class
        return [unknown(f"attention.{key}", []) for key in node]
    if group == "translation":  # null selects the trained model's value
        node = {key: value for key, value in node.items() if value is not None}
    try:
        return mismatches(node, class_of(group, node), group, GROUPS[group].given)
    except ConfigErrors as errors:
        return list(errors.faults)


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


def parameters(group: str, node: Group) -> dict[str, Any]:
    """Returns the allowed keys of a configuration group, with their default values."""
    return signature(class_of(group, node), GROUPS[group].given)[1]


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
    if faulty.isdisjoint(NETWORK):
        with torch.device("meta"), Uninitialized():  # allocates no memory for weights
            if "model" in config:
                # Incompatible sizes do not depend on the vocabulary, so 10 subwords are enough.
                errors += _raised(network, config, 10, 10)
            else:
                errors += _raised(classifier, config, 10, LabelSet(("a", "b"), False))
    return errors


def _raised(action: Callable[..., Any], *arguments: Any, **named: Any) -> list[ConfigError]:
    """Calls a function that builds a component, and returns the error if the component cannot be
    built. A constructor of a user may raise any exception."""
    try:
        action(*arguments, **named)
    except ValueError as error:
        return [ConfigError("", str(error))]
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)
        place = next((p for p in reversed(places) if "/torch/" not in p.filename), places[-1])
        problem = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        return [ConfigError("", f"building a component failed: {problem}")]
    return []


def view(config: Config) -> RunView:
    """Returns the view of a valid configuration for compatibility checks."""
    parts = {
        group: class_of(group, node)
        for group, node in config.items()
        if group in GROUPS and isinstance(node, Mapping) and node
    }
    return RunView(config, parts)


def network(
    config: Config, source_vocabulary: int, target_vocabulary: int, columns: Columns | None = None
) -> Seq2Seq:
    """Builds a translation model with initial weights.

    config: validated configuration, as nested dictionaries
    source_vocabulary: number of source subwords
    target_vocabulary: number of target subwords
    columns: columns of source lines; None for a single text
    """
    return translation_model(
        partial(make, config), config, source_vocabulary, target_vocabulary, columns or Columns()
    )


def classifier(config: Config, vocabulary: int, labels: LabelSet) -> Seq2Label:
    """Builds a text classifier with initial weights.

    config: validated configuration, as nested dictionaries
    vocabulary: number of subwords
    labels: labels to predict

    Raises ValueError if the components are incompatible.
    """
    encoder = make(config, "encoder", embedding_size=config["network"]["embedding_size"])
    # Initialised after the encoder, for reproducible random weights.
    pooling = make(config, "pooling", memory_size=encoder.memory_size)
    return make(
        config, "network", vocabulary=vocabulary, labels=labels, encoder=encoder, pooling=pooling
    )
