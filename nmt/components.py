"""Groups of the configuration, and construction of components such as encoder and decoder.

The signature of a component's constructor is the schema of its settings
(nmt/foundation/signatures.py).
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from nmt.data.labels import LabelSet
from nmt.foundation import plugins
from nmt.foundation.part_limits import ConfigError, ConfigErrors, PartGroup, RunView
from nmt.foundation.ranges import Size, Width
from nmt.foundation.signatures import bound, locate
from nmt.model import GROUPS as MODEL_GROUPS
from nmt.model.construction import translation_model
from nmt.model.seq2label import Seq2Label
from nmt.model.seq2seq import Seq2Seq
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
"""Packages and modules whose dictionary GROUPS lists the configuration groups of their classes."""
GROUPS: dict[str, PartGroup] = {"sizes": PartGroup(f"{__name__}.{Sizes.__qualname__}")}
"""Maps the name of each configuration group to the package that contains its classes, or to its
default class."""
for package in PACKAGES:
    GROUPS |= importlib.import_module(package).GROUPS
NETWORK = ("cell", *MODEL_GROUPS)
"""Configuration groups and keys that determine the architecture of the network."""


def class_of(group: str, node: Group) -> Callable[..., Any]:
    """Returns the class that a configuration group selects.

    Raises ConfigErrors if neither the group's package nor a permitted plugin defines the class.
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

    Raises ConfigErrors if the constructor of a plugin raises an exception.
    """
    node = config[group]
    kind = class_of(group, node)
    try:
        return bound(kind, node)(**supplied)
    except Exception as error:
        problem, raised_by = plugins.raised_at(error)
        if raised_by is None or isinstance(error, ConfigErrors):
            raise
        problem = str(error) if isinstance(error, ValueError) else problem
        raise ConfigErrors([ConfigError(group, problem, kind.__name__)]) from error


def view(config: Config) -> RunView:
    """Returns a read-only view of a valid configuration: its values, and the class of each group.

    Components use the view to check whether they are compatible with each other.
    """
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
    columns: column layout of the source lines; None if each line is a single text
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
