"""The one place where configuration becomes objects, and where their sizes are matched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from nmt.configuration.check import locate, mismatches
from nmt.configuration.faults import ConfigError, shown, unknown
from nmt.data.batching import Batching
from nmt.data.filters import Filters
from nmt.data.labels import LabelSet
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import NonNegative, Ratio, Size, Width
from nmt.inference.translator import Translator
from nmt.metric import Metric
from nmt.model.attention import Attention
from nmt.model.encoder import Encoder
from nmt.model.encoder.several import MultiSource
from nmt.model.seq2label import Seq2Label
from nmt.model.seq2seq import Seq2Seq
from nmt.tokenizer.columns import Columns
from nmt.training.trainer import Trainer

Config = Mapping[str, Any]
Group = Mapping[str, Any]
"""The keys of one group of the configuration."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What all choices of encoder, decoder and tokenizer share: hidden units of the encoder (per direction) and the decoder,
    features of the readout, pieces of the vocabulary."""

    encoder: Width
    decoder: Width | None = None
    readout: Width | None = None
    vocabulary: Size


@dataclass(frozen=True, kw_only=True)
class Synthetic:
    """Where the further pairs of nmt.backtranslate come from: see conf/backtranslate.yaml."""

    direction: Literal["backward", "forward"] = "backward"
    text: str | None = None
    model: str | list[str] | None = None
    search: Literal["sample", "greedy", "beam"] = "sample"
    width: Width = 5
    keep: Ratio = 1.0
    tag: str | None = "<back>"
    real: NonNegative = 1.0

    def __post_init__(self) -> None:
        if self.model == []:
            raise ValueError(
                "synthetic.model=[]: give a run directory, or several as [A,B], or null"
            )
        if not self.keep:
            raise ValueError("synthetic.keep=0 keeps nothing: give a share, such as 0.9")
        if self.tag is not None and (not self.tag.strip() or "\n" in self.tag):
            raise ValueError(
                "synthetic.tag: is put in front of the source text: give a word, such as <back>, or null"
            )


CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "data": ("nmt.data", ()),
    "tokenizer": ("nmt.tokenizer", ()),
    "encoder": ("nmt.model.encoder", ("embedding_size",)),
    "decoder": ("nmt.model.decoder", ("attention", "embedding_size", "memory_size")),
    "attention": ("nmt.model.attention", ("query_size", "memory_size")),
    "window": ("nmt.model.attention.window", ("query_size",)),
    "normalizer": ("nmt.model.attention.normalizer", ()),
    "optimizer": ("nmt.training.optimizer", ("parameters",)),
    "schedule": ("nmt.training.schedule", ()),
    "objective": ("nmt.training.objective", ()),
    "search": ("nmt.search", ()),
    "pooling": ("nmt.model.pooling", ("memory_size",)),
    "sweep": ("nmt.sweep", ()),
    "tracker": ("nmt.training.tracker", ()),
}
"""Groups whose `_target_` chooses a class: the package it must come from, and the arguments that this file supplies."""
PLAIN = {
    "window": {"_target_": "nmt.model.attention.window.Window"},
    "normalizer": {"_target_": "nmt.model.attention.normalizer.softmax.Softmax"},
}
"""Window and normaliser of attention if nothing else is chosen."""
FIXED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "sizes": (Sizes, ()),
    "model": (Seq2Seq, ("source_vocabulary", "target_vocabulary", "encoder", "decoder", "radices")),
    "filters": (Filters, ()),
    "batching": (Batching, ()),
    "metric": (Metric, ()),
    "trainer": (Trainer, ()),
    "synthetic": (Synthetic, ()),
    "network": (Seq2Label, ("vocabulary", "labels", "encoder", "pooling")),
}
"""Groups that always configure the same class."""
TRANSLATOR_OPTIONS = ("precision", "averaging", "shares", "languages", "lexicon")
"""Arguments of the translator that are not keys of its group, `translation`."""


def make(config: Config, group: str, **given: Any) -> Any:
    """The object that one group of the configuration describes."""
    values = {key: value for key, value in config[group].items() if key != "_target_"}
    target = (
        FIXED[group][0]
        if group in FIXED
        else locate(config[group]["_target_"], CHOICES[group][0], group)
    )
    return target(**values, **given)


def faults_of(group: str, node: Group) -> list[ConfigError]:
    """What is wrong with the keys and values of one group."""
    if group == "translation":  # null: as the model was trained
        chosen = {key: value for key, value in node.items() if value is not None}
        return mismatches(chosen, Translator, group, TRANSLATOR_OPTIONS)
    if group in FIXED:
        return mismatches(node, FIXED[group][0], group, FIXED[group][1])
    if group == "attention" and "_target_" not in node:  # attention=none
        return [unknown(f"attention.{key}", []) for key in node]
    package, given = CHOICES[group]
    try:
        return mismatches(node, locate(str(node.get("_target_", "")), package, group), group, given)
    except UserError:
        return [
            ConfigError(
                f"{group}._target_", f"not a class of {package}", shown(node.get("_target_"))
            )
        ]


def faults_of_building(group: str, node: Group, **given: Any) -> list[ConfigError]:
    """The error that an object raises when it is built from values that are each valid alone."""
    return [] if faults_of(group, node) else _said(lambda: make({group: node}, group, **given))


def impossible(config: Config, faulty: Set[str]) -> list[ConfigError]:
    """The errors that the parts of a training raise when they are built, on the meta device and with a small
    vocabulary. Groups in `faulty` are left out."""
    found: list[ConfigError] = []
    for group, node in config.items():
        alone = {**FIXED, **CHOICES}.get(group, (None, ("not alone",)))[1] == ()
        if alone and isinstance(node, Mapping) and group not in faulty:
            found += faults_of_building(group, node)
    if "optimizer" not in faulty:
        found += faults_of_building(
            "optimizer", config["optimizer"], parameters=[nn.Parameter(torch.zeros(1))]
        )
    parts = (
        "model",
        "encoder",
        "decoder",
        "attention",
        "window",
        "normalizer",
        "network",
        "pooling",
        "cell",
    )
    if not faulty & {*parts}:
        labels = LabelSet(("a", "b"), False)
        with torch.device("meta"):
            found += _said(
                lambda: (
                    network(config, 10, 10) if "model" in config else classifier(config, 10, labels)
                )
            )
    return found


def _said(action: Callable[[], Any]) -> list[ConfigError]:
    try:
        action()
    except ValueError as error:
        return [ConfigError("", str(error))]
    return []


def network(
    config: Config, source_vocabulary: int, target_vocabulary: int, columns: Columns | None = None
) -> Seq2Seq:
    """The model of a configuration, newly initialised, for source lines of some `columns` (None: a text). Raises
    ValueError if its parts do not fit together."""
    embedding_size, columns = config["model"]["embedding_size"], columns or Columns()
    read = embedding_size + len(columns.factors) * config["model"].get("factor_size", 32)
    encoders: list[Encoder] = [
        make(config, "encoder", embedding_size=read) for _ in range(max(1, columns.sources))
    ]
    encoder = encoders[0] if len(encoders) == 1 else MultiSource(encoders)
    attention = None
    if "_target_" in config["attention"]:
        query_size = config["decoder"]["hidden_size"]
        score = make(config, "attention", query_size=query_size, memory_size=encoder.memory_size)
        parts = {**PLAIN, **config}
        attention = Attention(
            score, make(parts, "window", query_size=query_size), make(parts, "normalizer")
        )
    elif any(
        (config.get(group) or usual)["_target_"] != usual["_target_"]
        for group, usual in PLAIN.items()
    ):
        raise ValueError(
            "attention=none uses no window or normalizer: leave window=global and normalizer=softmax"
        )
    decoder = make(
        config,
        "decoder",
        attention=attention,
        embedding_size=embedding_size,
        memory_size=encoder.memory_size,
    )
    sizes = {
        "source_vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary, "radices": columns.radices
    }  # fmt: skip
    return make(config, "model", encoder=encoder, decoder=decoder, **sizes)


def classifier(config: Config, vocabulary: int, labels: LabelSet) -> Seq2Label:
    """The network of nmt.classify, newly initialised. Raises ValueError if its parts do not fit together."""
    encoder: Encoder = make(config, "encoder", embedding_size=config["network"]["embedding_size"])
    pooling = make(config, "pooling", memory_size=encoder.memory_size)
    return make(
        config, "network", vocabulary=vocabulary, labels=labels, encoder=encoder, pooling=pooling
    )
