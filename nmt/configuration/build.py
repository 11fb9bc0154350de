"""The one place where configuration becomes objects, and sizes meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from nmt.attention import Attention
from nmt.corpus.batching import Batching
from nmt.configuration.check import faults, locate, unknown
from nmt.network.seq2label import Classifier
from nmt.corpus.ragged import Filters
from nmt.data.text import Errors
from nmt.encoder.bidirectional import Encoder
from nmt.foundation.errors import UserError
from nmt.corpus.labels import LabelSet
from nmt.metric import Metric
from nmt.foundation.ranges import Count, Size
from nmt.layers.recurrence import CellName
from nmt.network.seq2seq import Seq2Seq
from nmt.training.trainer import Trainer
from nmt.inference.translator import Translator

Config = Mapping[str, Any]

CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "data": ("nmt.data", ()),
    "tokenizer": ("nmt.tokenizer", ()),
    "encoder": ("nmt.encoder", ("embedding_size",)),
    "decoder": ("nmt.decoder", ("attention", "embedding_size", "memory_size")),
    "attention": ("nmt.attention", ("query_size", "memory_size")),
    "window": ("nmt.window", ("query_size",)),
    "normalizer": ("nmt.normalizer", ()),
    "optimizer": ("nmt.optimizer", ("parameters",)),
    "schedule": ("nmt.schedule", ()),
    "objective": ("nmt.objective", ()),
    "search": ("nmt.search", ()),
    "pooling": ("nmt.pooling", ("memory_size",)),
}
"""Config groups whose `_target_` picks one of several: where it may come from, which arguments are given here."""
PLAIN = {
    "window": {"_target_": "nmt.window.Window"},
    "normalizer": {"_target_": "nmt.normalizer.softmax.Softmax"},
}
"""What attention does if nothing else is chosen."""
FIXED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "model": (Seq2Seq, ("source_vocabulary", "target_vocabulary", "encoder", "decoder")),
    "filters": (Filters, ()),
    "batching": (Batching, ()),
    "metric": (Metric, ()),
    "trainer": (Trainer, ()),
    "translation": (Translator, ("precision", "averaging", "shares")),
    "network": (Classifier, ("vocabulary", "labels", "encoder", "pooling")),
}
"""Config groups that always configure the same class."""


def translation_settings(
    *,
    seed: Count,
    run_dir: str,
    device: str,
    cell: CellName,
    resume: str | None = None,
    grids: list[str] | None = None,
    max_validation: Count = 0,
) -> None:
    """The keys at the top of conf/train.yaml: their names and types."""


def classification_settings(
    *,
    seed: Count,
    run_dir: str,
    device: str,
    cell: CellName,
    resume: str | None = None,
    choose_by: Literal["macro_f1", "accuracy", "loss"],
    max_tokens: Size,
    vectors: str | None = None,
    freeze: bool = False,
    model: str | None = None,
    input: str | None = None,
    output: str | None = None,
    format: Literal["text", "jsonl"] = "text",
    errors: Errors = "strict",
    explain: str | None = None,
) -> None:
    """The keys at the top of conf/classify.yaml."""


def make(config: Config, group: str, **given: Any) -> Any:
    """The object that one group of the configuration describes."""
    values = {key: value for key, value in config[group].items() if key != "_target_"}
    target = FIXED[group][0] if group in FIXED else locate(config[group]["_target_"], CHOICES[group][0], group)
    return target(**values, **given)


@dataclass(frozen=True)
class Kind:
    """What a configuration is for: its groups, those of them that make the network, the keys at its top, and what else
    cannot be."""

    groups: tuple[str, ...]
    network: tuple[str, ...]
    settings: Callable[..., None]
    trial: Callable[[Config], Any]
    conflicts: Callable[[Config], list[str]]


def check(config: Config, kind: Kind | None = None) -> None:
    """Raises UserError listing every unknown key, wrong type, value out of range and impossible combination, by default in
    a configuration for translation."""
    kind, found = kind or TRANSLATION, []
    groups = (*kind.groups, *kind.network)
    top = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    for group in config:
        if group not in top and group not in groups:
            found.append(unknown(group, group, groups))
    found += [fault.removeprefix(".") for fault in faults(top, kind.settings, "")]
    for group in groups:
        node = config.get(group)
        target, given = {**FIXED, **CHOICES}[group]
        if not isinstance(node, Mapping):
            if group not in PLAIN:
                found.append(f"{group}: missing")
        elif group in FIXED:
            found += faults(node, target, group, given)
        elif group == "attention" and "_target_" not in node:
            found += [unknown(f"attention.{key}", key, []) for key in node]
        else:
            try:
                found += faults(node, locate(node.get("_target_", ""), str(target), group), group, given)
            except UserError as error:
                found.append(str(error))
    if any(fault.startswith("cell=") for fault in found):  # encoder and decoder repeat it
        found = [fault for fault in found if ".cell=" not in fault]
    faulty = {fault.partition(".")[0].partition(":")[0] for fault in found}
    found += _impossible(config, kind, faulty)
    if found:
        raise UserError("the configuration has faults:\n" + "\n".join(f"  - {fault}" for fault in found))


def _impossible(config: Config, kind: Kind, faulty: Collection[str]) -> list[str]:
    """What the parts without faults of their own say when they are built (on no device, with a small vocabulary)."""
    found: list[str] = []

    def attempt(groups: Sequence[str], action: Callable[[], Any]) -> None:
        if not faulty & set(groups):
            try:
                action()
            except ValueError as error:
                found.append(str(error))

    for group in kind.groups:
        if not {**FIXED, **CHOICES}[group][1]:
            attempt([group], partial(make, config, group))
    attempt(["optimizer"], lambda: make(config, "optimizer", parameters=[nn.Parameter(torch.zeros(1))]))
    if not faulty:
        found += kind.conflicts(config)
    with torch.device("meta"):
        attempt([*kind.network, "cell"], lambda: kind.trial(config))
    return found


def _translation_conflicts(config: Config) -> list[str]:
    if config["model"].get("tying") != "all" or config["tokenizer"].get("joint", True):
        return []
    return ["model.tying=all needs one vocabulary for both languages: set tokenizer.joint=true or model.tying=output"]


def _classification_conflicts(config: Config) -> list[str]:
    found = []
    if not config["tokenizer"].get("joint", True):
        found.append("tokenizer.joint=false: there is only one language; leave it out")
    if config.get("freeze") and not config.get("vectors"):
        found.append("freeze=true: there is nothing to freeze without vectors=FILE")
    return found + [
        f"{key}={config[key]}: goes with model=RUN_DIR (answering), not with training"
        for key in ("input", "output", "explain")
        if config.get(key) is not None
    ]


def network(config: Config, source_vocabulary: int, target_vocabulary: int) -> Seq2Seq:
    """The model of a configuration, newly initialised. Raises ValueError if its parts do not fit together."""
    embedding_size = config["model"]["embedding_size"]
    encoder: Encoder = make(config, "encoder", embedding_size=embedding_size)
    attention = None
    if "_target_" in config["attention"]:
        query_size = config["decoder"]["hidden_size"]
        score = make(config, "attention", query_size=query_size, memory_size=encoder.memory_size)
        parts = {**PLAIN, **config}
        attention = Attention(score, make(parts, "window", query_size=query_size), make(parts, "normalizer"))
    elif any(config.get(group, usual)["_target_"] != usual["_target_"] for group, usual in PLAIN.items()):
        raise ValueError("attention=none looks nowhere: leave window=global and normalizer=softmax")
    decoder = make(
        config, "decoder", attention=attention, embedding_size=embedding_size, memory_size=encoder.memory_size
    )
    sizes = {"source_vocabulary": source_vocabulary, "target_vocabulary": target_vocabulary}
    return make(config, "model", encoder=encoder, decoder=decoder, **sizes)


def classifier(config: Config, vocabulary: int, labels: LabelSet) -> Classifier:
    """The classifier of a configuration, newly initialised. Raises ValueError if its parts do not fit together."""
    encoder: Encoder = make(config, "encoder", embedding_size=config["network"]["embedding_size"])
    pooling = make(config, "pooling", memory_size=encoder.memory_size)
    return make(config, "network", vocabulary=vocabulary, labels=labels, encoder=encoder, pooling=pooling)


TRANSLATION = Kind(
    groups=(
        "data", "tokenizer", "filters", "batching", "search", "translation", "schedule", "objective", "trainer", "metric",
        "optimizer",
    ),
    network=("model", "encoder", "decoder", "attention", "window", "normalizer"),
    settings=translation_settings,
    trial=lambda config: network(config, 10, 10),
    conflicts=_translation_conflicts,
)  # fmt: skip
CLASSIFICATION = Kind(
    groups=("data", "tokenizer", "batching", "schedule", "trainer", "optimizer"),
    network=("network", "encoder", "pooling"),
    settings=classification_settings,
    trial=lambda config: classifier(config, 10, LabelSet(("a", "b"), False)),
    conflicts=_classification_conflicts,
)
