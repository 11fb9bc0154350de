"""The settings of every command as typed objects: one class for each YAML at the top of conf/. Its fields are the keys, its
annotations their types, and a field of type `Group` is a group whose keys configure an object (nmt/configuration/build.py).

A command's `Settings` are only made from a configuration without faults.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.check import locate, mismatches
from nmt.configuration.faults import Fault, Faults, shown, unknown
from nmt.configuration.fine_tuning import freeze
from nmt.data.text import Errors
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Count, Positive, Range, Size
from nmt.inference.formats import ONE_BEST, FormatName
from nmt.inference.generation import Averaging
from nmt.inference.word_alignment import Symmetrization
from nmt.layers.cells import CellName
from nmt.layers.packed import GenerationPrecision

Seed = Annotated[int, Range(0, 2**32 - 1)]
Models = str | list[str]
"""A run directory or checkpoint file, or several as an ensemble."""
ENDINGS = (".html", ".png", ".json")
Some = TypeVar("Some", bound="Settings")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of all settings. `written` and `read`: keys that name output files and input files."""

    written: ClassVar[Sequence[str]] = ("output",)
    read: ClassVar[Sequence[str]] = (
        "input",
        "source",
        "reference",
        "target",
        "nbest",
        "prefix",
        "constraints",
        "gold",
        "lexicon",
    )

    @classmethod
    def of(cls: type[Some], values: Mapping[str, Any], also: Sequence[Fault] = ()) -> Some:
        """The settings that a configuration describes. Raises Faults listing everything that is wrong with it, and the
        faults in `also`, which were found before."""
        found = [*also, *cls._faults(values)]
        found += cls.impossible(values, {fault.key.partition(".")[0] for fault in found})
        if not found:
            found += cls(**values).conflicts()
        if found:
            raise Faults(found)
        return cls(**values)

    @classmethod
    def impossible(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
        """Errors that groups raise when they are built; groups in `faulty` are left out."""
        return []

    @classmethod
    def _faults(cls, values: Mapping[str, Any]) -> list[Fault]:
        """What is wrong with single keys and values."""
        groups = cls.groups()
        top = {key: value for key, value in values.items() if key not in groups and not isinstance(value, Mapping)}
        found = [
            unknown(key, [f.name for f in dataclasses.fields(cls)])
            for key, value in values.items()
            if key not in groups and isinstance(value, Mapping)
        ]
        found += mismatches(top, cls, given=list(groups))
        for group, needed in groups.items():
            node = values.get(group)
            if isinstance(node, Mapping):
                found += build.faults_of(group, node)
            elif needed or node is not None:
                found.append(Fault(group, "missing"))
        repeated = {fault.key for fault in found if "." not in fault.key}  # e.g. encoder.cell repeats cell
        return [fault for fault in found if fault.key.rpartition(".")[2] not in repeated or "." not in fault.key]

    @classmethod
    def groups(cls) -> dict[str, bool]:
        """The groups of this command, and whether each is needed."""
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [f for f in dataclasses.fields(cls) if hints[f.name] in (Group, Group | None)]
        return {f.name: f.default is dataclasses.MISSING for f in fields}

    def conflicts(self) -> list[Fault]:
        """Combinations of values that are not allowed."""
        return self._same_files()

    def idle(self) -> dict[str, str]:
        """Keys that change nothing in this configuration, and why. Typed on the command line, they are faults."""
        return {}

    def _same_files(self) -> list[Fault]:
        """An output that is also an input, or written twice."""
        found, taken = [], dict[Path, str]()
        for key in (*self.read, *self.written):
            name = getattr(self, key, None)
            if not name:
                continue
            file = Path(name).resolve()
            if key in self.written and file in taken:
                how = "written" if taken[file] in self.written else "read"
                found.append(Fault(key, f"is {how} as {taken[file]}= too; choose another name", name))
            taken[file] = key
        return found

    @property
    def values(self) -> dict[str, Any]:
        """The configuration as plain containers, as a checkpoint keeps it."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


# Training


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """What every training has."""

    seed: Seed
    run_dir: str | None = None
    device: str
    cell: CellName
    resume: str | None = None
    sizes: Group | None = None
    data: Group
    tokenizer: Group
    batching: Group
    encoder: Group
    optimizer: Group
    schedule: Group
    trainer: Group

    @classmethod
    def impossible(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[Fault]:
        return build.impossible(values, faulty)

    def idle(self) -> dict[str, str]:
        found = _idle_layers("encoder", self.encoder)
        trainer, tokenizer = self.trainer, self.tokenizer
        if trainer.get("average") == 1:
            found["trainer.average"] = "is the best model alone; give at least 2, or 0"
        epochs, updates = trainer.get("validate_every", 1.0), trainer.get("validate_every_updates", 0)
        if updates:
            found["trainer.validate_every"] = f"validation is every {updates} updates"
        elif trainer.get("average", 0) > 1 and trainer.get("max_epochs", 10) <= epochs:
            found["trainer.average"] = "there is only one validation; lower trainer.validate_every"
        if tokenizer["_target_"] == "nmt.tokenizer.SentencePieceFile":
            found["sizes.vocabulary"] = "the vocabulary is that of tokenizer.model"
        if tokenizer.get("split_digits") and tokenizer.get("model") == "char":
            found["tokenizer.split_digits"] = "every character is a piece of its own already"
        return found


@dataclass(frozen=True, kw_only=True)
class TrainSettings(TrainingSettings):
    """conf/train.yaml."""

    init: str | None = None
    init_vocabulary: Literal["keep", "grow"] = "keep"
    freeze: list[str] | None = None
    vectors: list[str | None] | None = None
    grids: list[str] | None = None
    max_validation: Count = 0
    keep_validations: bool = False
    model: Group
    decoder: Group
    attention: Group
    window: Group | None = None
    normalizer: Group | None = None
    filters: Group
    objective: Group
    search: Group
    translation: Group
    metric: Group

    def conflicts(self) -> list[Fault]:
        found = super().conflicts() + self._attention_conflicts() + self._beginning_conflicts()
        for key, value, instead in (("tying", "all", "model.tying=output"), ("copy", True, "model.copy=false")):
            if self.model.get(key) == value and not _joint(self.tokenizer):
                remedy = f"needs one vocabulary for both languages: set tokenizer.joint=true or {instead}"
                found.append(Fault(f"model.{key}", remedy, shown(value)))
        return found

    def _attention_conflicts(self) -> list[Fault]:
        """What needs attention where there is none."""
        if self.attention:
            return []
        why, found = "needs attention, and there is none (attention=none): leave it out", list[Fault]()
        for group, key in (("search", "coverage"), ("objective", "doubly_stochastic")):
            value = getattr(self, group).get(key)
            found += [Fault(f"{group}.{key}", why, shown(value))] if value else []
        if self.translation.get("unknown") == "copy":
            found.append(Fault("translation.unknown", why, "copy"))
        return found

    def _beginning_conflicts(self) -> list[Fault]:
        """What is wrong with how the weights begin, and which of them are trained."""
        found, tables = list[Fault](), {"source_embedding", "target_embedding", "output"}
        if self.init_vocabulary == "grow" and tables & {*(self.freeze or [])}:
            found.append(Fault("freeze", "the vectors of the new pieces would never be trained (init_vocabulary=grow)"))
        if self.freeze:
            with torch.device("meta"):
                network = build.network(self.values, 10, 10)
            try:
                freeze(network, self.freeze)
            except UserError as error:
                found.append(Fault("", str(error)))
        if self.vectors is not None and (len(self.vectors) != 2 or self.vectors == [None, None]):
            found.append(
                Fault("vectors", "give two files, [SOURCE,TARGET]; null for a language without", shown(self.vectors))
            )
        if self.vectors and self.init:
            found.append(Fault("vectors", f"the words of init={self.init} have vectors already; leave one of them out"))
        return found

    def idle(self) -> dict[str, str]:
        found = {**super().idle(), **_idle_layers("decoder", self.decoder)}
        if not self.model.get("dropout") and not self.model.get("readout_dropout"):
            found["model.variational_dropout"] = "nothing is dropped: set model.dropout or model.readout_dropout"
        if not self.init:
            found["init_vocabulary"] = "there is no init=RUN_DIR"
        found["search.n_best"] = "training keeps the best translation only; give it to nmt.translate"
        objective = self.objective
        if objective.get("decay") == "constant":
            for key in ("end", "pace", "updates"):
                found[f"objective.{key}"] = "the ratio stays objective.start with objective.decay=constant"
        elif objective.get("updates"):
            found["objective.pace"] = f"the pace is objective.updates={objective['updates']}"
        return found


@dataclass(frozen=True, kw_only=True)
class ClassifySettings(TrainingSettings):
    """conf/classify.yaml."""

    choose_by: Literal["macro_f1", "accuracy", "loss"]
    max_tokens: Size
    vectors: str | None = None
    freeze: bool = False
    network: Group
    pooling: Group

    def conflicts(self) -> list[Fault]:
        found = super().conflicts()
        if not hasattr(locate(self.data["_target_"], "nmt.data", "data"), "labelled"):
            found.append(Fault("data", "this data set has no labels; choose data=tsv, csv, jsonl, parquet or hub"))
        if not _joint(self.tokenizer):
            found.append(Fault("tokenizer.joint", "there is only one language; leave it out", "false"))
        if self.freeze and not self.vectors:
            found.append(Fault("freeze", "there is nothing to freeze without vectors=FILE", "true"))
        return found


# Using a trained model


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """What every command with a trained translation model has."""

    model: Models
    device: str
    precision: GenerationPrecision
    averaging: Averaging
    shares: list[Positive] | None = None
    translation: Group

    def conflicts(self) -> list[Fault]:
        found, paths = self._same_files(), models(self.model)
        if self.model == []:
            found.append(Fault("model", "give a run directory, or several as [A,B,C]", "[]"))
        elif self.shares is not None and paths and len(self.shares) != len(paths):
            found.append(
                Fault("shares", f"give one positive number for each of {len(paths)} models", shown(self.shares))
            )
        return found

    def idle(self) -> dict[str, str]:
        if len(models(self.model)) > 1:
            return {}
        why = "there is only one model: model=[A,B] makes an ensemble"
        return {"averaging": why, "shares": why}

    def _lexicon(self, path: str | None) -> list[Fault]:
        used = not path or self.translation.get("unknown") == "copy"
        return [] if used else [Fault("lexicon", "is for unknown words: set translation.unknown=copy too", path)]

    @property
    def translator_options(self) -> dict[str, Any]:
        """Options of the translator that are set here; the others are those of the model."""
        return {key: value for key, value in self.translation.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class TranslateSettings(ModelSettings):
    """conf/translate.yaml."""

    written: ClassVar[Sequence[str]] = ("output", "attention_map")

    input: str | None = None
    output: str | None = None
    format: FormatName
    errors: Errors
    resume: bool
    lexicon: str | None = None
    prefix: str | None = None
    constraints: str | None = None
    attention_map: str | None = None
    compare: Models | None = None
    search: Group

    def conflicts(self) -> list[Fault]:
        found = super().conflicts() + build.faults_of_building("search", self.search) + self._lexicon(self.lexicon)
        most = self.search.get("n_best", 1)
        if self.format in ONE_BEST and most > 1:
            found.append(Fault("search.n_best", "shown by format=jsonl and format=moses only", shown(most)))
        if self.attention_map and not self.attention_map.endswith(ENDINGS):
            found.append(Fault("attention_map", "the name must end in .html, .png or .json", self.attention_map))
        if self.compare and not self.attention_map:
            what = "names models to draw beside the main one in attention_map=FILE.html; give that too"
            found.append(Fault("compare", what))
        beside, own = models(self.compare), models(self.model)
        if len(beside) > 3:
            found.append(Fault("compare", "give at most three models beside the one that translates"))
        if len({*beside, *own}) < len(beside) + len(set(own)):
            found.append(Fault("compare", "give each model once, and not the one that translates"))
        if self.resume and not (self.output and self.input):
            found.append(Fault("resume", "needs input=FILE and output=FILE", "true"))
        if self.resume and self.attention_map:
            found.append(Fault("resume", "an attention map needs all sentences; leave attention_map out", "true"))
        if (self.prefix or self.constraints) and not self.input:
            found.append(Fault("prefix and constraints", "belong to the lines of a file; give input=FILE"))
        return found


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(ModelSettings):
    """conf/evaluate.yaml."""

    source: str
    reference: str
    output: str | None = None
    lexicon: str | None = None
    search: Group
    metric: Group

    def conflicts(self) -> list[Fault]:
        found = super().conflicts() + build.faults_of_building("search", self.search) + self._lexicon(self.lexicon)
        if self.metric.get("name") == "loss":
            found.append(Fault("metric.name", "not a comparison of texts; choose bleu, chrf, ter or exact", "loss"))
        most = self.search.get("n_best", 1)
        if most > 1:
            found.append(Fault("search.n_best", "only the best translation is evaluated; leave it out", shown(most)))
        return found


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(ModelSettings):
    """conf/score.yaml."""

    source: str
    target: str | None = None
    nbest: str | None = None
    output: str | None = None
    format: Literal["text", "jsonl"]
    normalize: Literal["none", "average"]
    errors: Errors

    def conflicts(self) -> list[Fault]:
        found = super().conflicts()
        if (self.target is None) == (self.nbest is None):
            remedy = "give one of them, target=FILE (one translation per line) or nbest=FILE (Moses format)"
            found.append(Fault("target, nbest", remedy))
        elif self.nbest and (self.format != "text" or self.normalize != "none"):
            remedy = "is written back in its own format, with log-probabilities; leave format and normalize out"
            found.append(Fault("nbest", remedy))
        return found


@dataclass(frozen=True, kw_only=True)
class AlignSettings(ModelSettings):
    """conf/align.yaml."""

    model: Models | None = None  # type: ignore[assignment]  # not with vectors
    vectors: list[str] | None = None
    reverse: Models | None = None
    symmetrize: Symmetrization
    units: Literal["word", "space"]
    source: str
    target: str
    gold: str | None = None
    output: str | None = None
    format: Literal["pharaoh", "json"]

    def conflicts(self) -> list[Fault]:
        found = super().conflicts()
        if (self.model is None) == (self.vectors is None):
            found.append(Fault("model, vectors", "give one of them, model=RUN_DIR or vectors=[SOURCE,TARGET]"))
        elif self.vectors is not None and len(self.vectors) != 2:
            found.append(Fault("vectors", "give two files, [SOURCE,TARGET]"))
        elif self.vectors and self.reverse:
            found.append(Fault("reverse", "vectors already look in both directions; leave it out"))
        return found

    def idle(self) -> dict[str, str]:
        found = {} if self.vectors else super().idle()
        if not self.vectors and not self.reverse:
            found["symmetrize"] = "there is one direction: give reverse=RUN_DIR too"
        for key in ("device", "precision", "averaging", "shares", "translation.max_source") if self.vectors else ():
            found[key] = "vectors need no model"
        return found


@dataclass(frozen=True, kw_only=True)
class LabelSettings(Settings):
    """conf/label.yaml."""

    written: ClassVar[Sequence[str]] = ("output", "explain")

    model: str
    device: str
    input: str | None = None
    output: str | None = None
    format: Literal["text", "jsonl"]
    errors: Errors
    explain: str | None = None

    def conflicts(self) -> list[Fault]:
        found = super().conflicts()
        if self.explain and not self.explain.endswith(ENDINGS):
            found.append(Fault("explain", "the name must end in .html, .png or .json", self.explain))
        return found


@dataclass(frozen=True, kw_only=True)
class AverageSettings(Settings):
    """conf/average.yaml."""

    models: list[str]
    output: str

    def conflicts(self) -> list[Fault]:
        found = super().conflicts()
        if len(self.models) < 2:
            found.append(Fault("models", "give at least two, as [A,B]", shown(self.models)))
        if not self.output.endswith(".safetensors"):
            found.append(Fault("output", "the name must end in .safetensors", self.output))
        elif any(Path(model).resolve() == Path(self.output).resolve() for model in self.models):
            found.append(Fault("output", "is one of the models; choose another name", self.output))
        return found


COMMANDS: dict[str, type[Settings]] = {
    "train": TrainSettings,
    "classify": ClassifySettings,
    "translate": TranslateSettings,
    "evaluate": EvaluateSettings,
    "score": ScoreSettings,
    "align": AlignSettings,
    "label": LabelSettings,
    "average": AverageSettings,
}
"""The settings of each command."""


def _joint(tokenizer: Group) -> bool:
    """Whether both languages have one vocabulary."""
    return bool(tokenizer.get("joint", tokenizer.get("target") is None))


def _idle_layers(group: str, node: Group) -> dict[str, str]:
    """What a stack of one layer does not use."""
    one = node.get("num_layers", 1) == 1
    found = {f"{group}.{key}": f"acts between layers: set {group}.num_layers" for key in ("dropout", "residual") if one}
    if one or not node.get("dropout"):
        found[f"{group}.variational_dropout"] = f"is a kind of {group}.dropout: set that, and at least two layers"
    return {key: why for key, why in found.items() if node.get(key.partition(".")[2])}


def models(value: Models | None) -> list[str]:
    """One path or several as a list."""
    return [value] if isinstance(value, str) else value or []
