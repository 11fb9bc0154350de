"""Construction of objects from groups of the configuration, with matching sizes."""

import inspect
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from nmt.configuration.check import bound, locate, mismatches, signature
from nmt.configuration.faults import ConfigError, ConfigErrors, unknown
from nmt.data.batching import Batching
from nmt.data.filters import Filters
from nmt.data.labels import LabelSet
from nmt.data.synthetic import Synthetic
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Size, Width
from nmt.inference.translator import Translator
from nmt.metric import Metric
from nmt.model.construction import translation_model
from nmt.model.seq2label import Seq2Label
from nmt.model.seq2seq import Seq2Seq
from nmt.model.uninitialized import Uninitialized
from nmt.tokenizer.columns import Columns
from nmt.training.trainer import Trainer

Config = Mapping[str, Any]
Group = Mapping[str, Any]
"""Keys and values of one group of the configuration."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes for all choices of encoder, decoder and tokenizer.

    encoder: number of hidden units per direction
    decoder: number of hidden units
    readout: number of features from which tokens are predicted
    vocabulary: number of pieces
    """

    encoder: Width
    decoder: Width | None = None
    readout: Width | None = None
    vocabulary: Size


@dataclass(frozen=True)
class Configured:
    """Class of a group of the configuration.

    by: package from which `_target_` chooses the class; or the class itself, of which `_target_`
        may name a subclass
    supplied: arguments that are not keys, because other parts determine them
    optional: further such arguments, which have defaults
    """

    by: str | type
    supplied: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def given(self) -> tuple[str, ...]:
        """All arguments that are not keys."""
        return self.supplied + self.optional


GROUPS = {
    "data": Configured("nmt.data"),
    "tokenizer": Configured("nmt.tokenizer"),
    "encoder": Configured("nmt.model.encoder", ("embedding_size",)),
    "decoder": Configured("nmt.model.decoder", ("attention", "embedding_size", "memory_size")),
    "attention": Configured("nmt.model.attention", ("query_size", "memory_size")),
    "window": Configured("nmt.model.attention.window", ("query_size",)),
    "normalizer": Configured("nmt.model.attention.normalizer"),
    "optimizer": Configured("nmt.training.optimizer", ("parameters",)),
    "schedule": Configured("nmt.training.schedule"),
    "objective": Configured("nmt.training.objective", optional=("teachers", "critic")),
    "search": Configured("nmt.search"),
    "pooling": Configured("nmt.model.pooling", ("memory_size",)),
    "sweep": Configured("nmt.sweep"),
    "tracker": Configured("nmt.training.tracker"),
    "callback": Configured("nmt.training.callback"),
    "sizes": Configured(Sizes),
    "model": Configured(
        Seq2Seq, ("source_vocabulary", "target_vocabulary", "encoder", "decoder", "radices")
    ),
    "filters": Configured(Filters, optional=("tags",)),
    "batching": Configured(Batching),
    "metric": Configured(Metric),
    "trainer": Configured(Trainer),
    "synthetic": Configured(Synthetic),
    "network": Configured(Seq2Label, ("vocabulary", "labels", "encoder", "pooling")),
    "translation": Configured(
        Translator, ("precision", "averaging", "shares", "languages", "lexicon")
    ),
}
"""Groups of all commands."""
NETWORK = frozenset(
    {
        "cell",
        "model",
        "encoder",
        "decoder",
        "attention",
        "window",
        "normalizer",
        "network",
        "pooling",
    }
)
"""Groups and keys from which a network is built."""


def class_of(group: str, node: Group) -> Callable[..., Any]:
    """The class of a group. Raises ConfigErrors if neither its package nor a plugin has it."""
    by = GROUPS[group].by
    target = str(node.get("_target_", ""))
    if isinstance(by, str):
        return locate(target, by, group)
    return locate(target, by.__module__, group, by) if target else by


def make(config: Config, group: str, **supplied: Any) -> Any:
    """Builds the object of a group.

    config: configuration without errors
    group: name of the group
    supplied: arguments that are not keys
    """
    node = config[group]
    return bound(class_of(group, node), node)(**supplied)


def faults_of(group: str, node: Group) -> list[ConfigError]:
    """Errors in the keys and values of one group."""
    if group == "attention" and "_target_" not in node:  # attention=none
        return [unknown(f"attention.{key}", []) for key in node]
    if group == "translation":  # null: as the model was trained
        node = {key: value for key, value in node.items() if value is not None}
    try:
        return mismatches(node, class_of(group, node), group, GROUPS[group].given)
    except ConfigErrors as errors:
        return list(errors.faults)


def completed(config: Config) -> dict[str, Any]:
    """Adds the defaults of missing keys to a configuration without errors."""
    groups = {}
    for group in view(config).parts:
        # Keys that are null in the signature stay absent, as in the YAML of the group.
        unset = (None, inspect.Parameter.empty)
        keys = parameters(group, config[group]).items()
        defaults = {key: default for key, default in keys if default not in unset}
        groups[group] = {**defaults, **config[group]}
    return {**config, **groups}


def parameters(group: str, node: Group) -> dict[str, Any]:
    """Keys that a group may have, with their defaults."""
    return signature(class_of(group, node), GROUPS[group].given)[1]


def faults_of_building(group: str, node: Group, **supplied: Any) -> list[ConfigError]:
    """The error of an object whose values do not fit together.

    group: name of the group
    node: keys and values of the group; no object is built if one of them is invalid
    supplied: arguments that are not keys
    """
    return [] if faults_of(group, node) else _raised(make, {group: node}, group, **supplied)


def impossible(config: Config, faulty: Set[str]) -> list[ConfigError]:
    """Errors of the parts of a training when they are built with a small vocabulary.

    config: the configuration
    faulty: groups with errors, which are left out
    """
    # The optimizer needs weights and the network sizes; the other parts need nothing.
    alone = {group for group, configured in GROUPS.items() if not configured.supplied} - faulty
    errors: list[ConfigError] = []
    for group, node in config.items():
        if group in alone and isinstance(node, Mapping):
            errors += faults_of_building(group, node)
    if "optimizer" not in faulty:
        # An optimizer refuses an empty list of parameters.
        parameters = [nn.Parameter(torch.zeros(1))]
        errors += faults_of_building("optimizer", config["optimizer"], parameters=parameters)
    if not faulty & NETWORK:
        with torch.device("meta"), Uninitialized():  # without memory for the weights
            if "model" in config:
                # Misfits do not depend on the size of the vocabulary: ten pieces will do.
                errors += _raised(network, config, 10, 10)
            else:
                errors += _raised(classifier, config, 10, LabelSet(("a", "b"), False))
    return errors


def _raised(action: Callable[..., Any], *arguments: Any, **named: Any) -> list[ConfigError]:
    try:
        action(*arguments, **named)
    except ValueError as error:
        return [ConfigError("", str(error))]
    return []


def view(config: Config) -> RunView:
    """A configuration without errors, for the checks of its parts."""
    parts = {
        group: class_of(group, node)
        for group, node in config.items()
        if group in GROUPS and isinstance(node, Mapping) and node
    }
    return RunView(config, parts)


def network(
    config: Config, source_vocabulary: int, target_vocabulary: int, columns: Columns | None = None
) -> Seq2Seq:
    """Builds a translation model with initial weights; see `translation_model`."""
    return translation_model(
        partial(make, config), config, source_vocabulary, target_vocabulary, columns or Columns()
    )


def classifier(config: Config, vocabulary: int, labels: LabelSet) -> Seq2Label:
    """Builds a classifier with initial weights.

    config: configuration without errors
    vocabulary: number of pieces
    labels: set of labels

    Raises ValueError if the parts do not fit together.
    """
    encoder = make(config, "encoder", embedding_size=config["network"]["embedding_size"])
    pooling = make(config, "pooling", memory_size=encoder.memory_size)
    return make(
        config, "network", vocabulary=vocabulary, labels=labels, encoder=encoder, pooling=pooling
    )
