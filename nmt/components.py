"""Groups of the configuration, and construction of components such as encoder and decoder.

The signature of a component's constructor is the schema of its settings
(nmt/foundation/signatures.py).
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nmt.data.labels import LabelSet
from nmt.foundation import plugins
from nmt.foundation.part_limits import ConfigError, ConfigErrors, PartGroup, RunView
from nmt.foundation.ranges import Size, Width
from nmt.foundation.signatures import bound, locate
from nmt.model.attention.layer import Attention, check_unused
from nmt.model.encoder.multi_source import MultiSource
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
    decoder: hidden units; None if the command has no decoder
    readout: number of features from which the output layer predicts tokens
    vocabulary: number of subwords
    """

    encoder: Width
    decoder: Width | None = None
    readout: Width | None = None
    vocabulary: Size


MODEL_GROUPS = {
    "model": PartGroup(
        "nmt.model.seq2seq.Seq2Seq",
        ("source_vocabulary", "target_vocabulary", "encoder", "decoder", "radices"),
    ),
    "encoder": PartGroup("nmt.model.encoder", ("embedding_size",)),
    "decoder": PartGroup("nmt.model.decoder", ("attention", "embedding_size", "memory_size")),
    "attention": PartGroup("nmt.model.attention", ("query_size", "memory_size")),
    "window": PartGroup("nmt.model.attention.window", ("query_size",)),
    "normalizer": PartGroup("nmt.model.attention.normalizer"),
    "network": PartGroup(
        "nmt.model.seq2label.Seq2Label", ("vocabulary", "labels", "encoder", "pooling")
    ),
    "pooling": PartGroup("nmt.model.pooling", ("memory_size",)),
}
"""Configuration groups of the network, as in `GROUPS`."""
GROUPS = MODEL_GROUPS | {
    "sizes": PartGroup(f"{__name__}.{Sizes.__qualname__}"),
    "data": PartGroup("nmt.data"),
    "filters": PartGroup("nmt.data.filters.Filters", optional=("tags",)),
    "batching": PartGroup("nmt.data.batching.Batching"),
    "synthetic": PartGroup("nmt.data.synthetic.Synthetic"),
    "tokenizer": PartGroup("nmt.tokenizer"),
    "optimizer": PartGroup("nmt.training.optimizer", ("parameters",)),
    "schedule": PartGroup("nmt.training.schedule"),
    "objective": PartGroup("nmt.training.objective", optional=("teachers", "candidate_generator")),
    "trainer": PartGroup("nmt.training.trainer.Trainer"),
    "tracker": PartGroup("nmt.training.tracker"),
    "callback": PartGroup("nmt.training.callback"),
    "search": PartGroup("nmt.search"),
    "translation": PartGroup(
        "nmt.inference.translator.Translator",
        ("precision", "averaging", "shares", "languages", "lexicon", "typical_words"),
    ),
    "metric": PartGroup("nmt.metric.Metric"),
    "sweep": PartGroup("nmt.sweep"),
}
"""Maps the name of each configuration group to the package that contains its classes, or to its
default class."""
NETWORK = ("cell", *MODEL_GROUPS)
"""Configuration groups and keys that determine the architecture of the network."""


def class_of(group: str, node: Group) -> Callable[..., Any]:
    """Returns the class that a configuration group selects.

    Raises ConfigErrors if neither the group's package nor a permitted plugin defines the class.
    """
    configured = GROUPS[group]
    target = str(node.get("_target_", ""))
    if not configured.is_class:
        # PyTorch's optimizers are wrapped in functions.
        return locate(target, configured.by, group, accepts_functions=group == "optimizer")
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
    columns: layout of a line of source data, which has one column per source and per factor; None
        if each line is a single text

    Raises ValueError if the components do not fit together.
    """
    columns = columns or Columns()
    embedding_size = config["model"]["embedding_size"]
    factors = len(columns.factors) * config["model"].get("factor_size", 32)
    encoders = [
        make(config, "encoder", embedding_size=embedding_size + factors)
        for _ in range(max(1, columns.sources))
    ]
    encoder = encoders[0] if len(encoders) == 1 else MultiSource(encoders)
    decoder = make(
        config,
        "decoder",
        attention=_attention(config, encoder.memory_size),
        embedding_size=embedding_size,
        memory_size=encoder.memory_size,
    )
    decoder.check_forward()
    return make(
        config,
        "model",
        encoder=encoder,
        decoder=decoder,
        source_vocabulary=source_vocabulary,
        target_vocabulary=target_vocabulary,
        radices=columns.radices,
    )


def _attention(config: Config, memory_size: int) -> Attention | None:
    """Builds the attention of a decoder from the configured score, window and normaliser; returns
    None if the configuration has no score."""
    query_size = config["decoder"]["hidden_size"]
    gate_size = query_size if config["decoder"].get("context_gate") else None
    score = None
    # The score is built before the window, which fixes the order of random draws.
    if "_target_" in config["attention"]:
        score = make(config, "attention", query_size=query_size, memory_size=memory_size)
    window = make(config, "window", query_size=query_size) if config.get("window") else None
    normalizer = make(config, "normalizer") if config.get("normalizer") else None
    if score is None:
        check_unused(window, normalizer)
        return None
    return Attention(score, window, normalizer, gate_size)


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
