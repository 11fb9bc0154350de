"""The settings of what uses trained models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.faults import ConfigError, shown
from nmt.configuration.settings import Settings
from nmt.data.lines import Errors
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranges import Count, NonNegative, Positive, Range, Size
from nmt.inference.model_step import Averaging
from nmt.inference.output_formats import ONE_BEST, FormatName
from nmt.inference.word_alignment import Symmetrization
from nmt.model.layers.packed import GenerationPrecision
from nmt.tokenizer.words import Units

Models = str | list[str]
"""A run directory or checkpoint file, or several as an ensemble."""
ENDINGS = (".html", ".png", ".json")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """What every command with a trained translation model has."""

    model: Models
    device: str
    precision: GenerationPrecision
    translation: Group

    def conflicts(self) -> list[ConfigError]:
        found = self._same_files()
        if self.model == []:
            found.append(ConfigError("model", "give a run directory, or several as [A,B,C]", "[]"))
        return found

    @property
    def translator_options(self) -> dict[str, Any]:
        """Options of the translator that are set here; the others are those of the model."""
        return {key: value for key, value in self.translation.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings(ModelSettings):
    """Several models may translate as one."""

    averaging: Averaging
    shares: list[Positive] | None = None

    def conflicts(self) -> list[ConfigError]:
        found, paths = super().conflicts(), models(self.model)
        if self.shares is not None and paths and len(self.shares) != len(paths):
            found.append(
                ConfigError(
                    "shares",
                    f"give one positive number for each of {len(paths)} models",
                    shown(self.shares),
                )
            )
        return found

    def idle(self) -> dict[str, str]:
        if len(models(self.model)) > 1:
            return {}
        why = "there is only one model: model=[A,B] makes an ensemble"
        return {"averaging": why, "shares": why}

    def _lexicon(self, path: str | None) -> list[ConfigError]:
        used = not path or self.translation.get("unknown") == "copy"
        return (
            []
            if used
            else [
                ConfigError(
                    "lexicon", "is for unknown words: set translation.unknown=copy too", path
                )
            ]
        )


@dataclass(frozen=True, kw_only=True)
class TranslateSettings(EnsembleSettings):
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
    units: Units = "word"
    compare: Models | None = None
    search: Group

    def conflicts(self) -> list[ConfigError]:
        found = (
            super().conflicts()
            + build.faults_of_building("search", self.search)
            + self._lexicon(self.lexicon)
        )
        most = self.search.get("n_best", 1)
        if self.format in ONE_BEST and most > 1:
            found.append(
                ConfigError(
                    "search.n_best", "shown by format=jsonl and format=moses only", shown(most)
                )
            )
        found += map_name(self.attention_map)
        if self.compare and not self.attention_map:
            what = (
                "names models to draw beside the main one in attention_map=FILE.html; give that too"
            )
            found.append(ConfigError("compare", what))
        beside, own = models(self.compare), models(self.model)
        if len(beside) > 3:
            found.append(
                ConfigError("compare", "give at most three models beside the one that translates")
            )
        if len({*beside, *own}) < len(beside) + len(set(own)):
            found.append(
                ConfigError("compare", "give each model once, and not the one that translates")
            )
        if self.resume and not (self.output and self.input):
            found.append(ConfigError("resume", "needs input=FILE and output=FILE", "true"))
        if self.resume and self.attention_map:
            found.append(
                ConfigError(
                    "resume",
                    "an attention map needs all sentences; leave attention_map out",
                    "true",
                )
            )
        if (self.prefix or self.constraints) and not self.input:
            found.append(
                ConfigError(
                    "prefix and constraints", "belong to the lines of a file; give input=FILE"
                )
            )
        return found

    def idle(self) -> dict[str, str]:
        found = super().idle()
        if not self.attention_map and self.format not in ("jsonl", "pharaoh"):
            found["units"] = (
                "no alignment is shown: give attention_map=FILE.html, format=jsonl or pharaoh"
            )
        return found


@dataclass(frozen=True, kw_only=True)
class ServeSettings(ModelSettings):
    """conf/serve.yaml."""

    names: list[str] | None = None
    host: str
    port: Annotated[int, Range(0, 65535)]
    index: str | None = None
    keys: str | None = None
    origins: list[str] | None = None
    max_characters: Size
    max_texts: Size
    max_bytes: Size
    max_seconds: Positive
    max_open: Size
    per_minute: Count
    wait: NonNegative
    batch: Size
    reload: NonNegative
    log_texts: bool
    search: Group

    @property
    def called(self) -> dict[str, str]:
        """The models' paths by their names."""
        return dict(zip(self._names, models(self.model), strict=True))

    @property
    def _names(self) -> list[str]:
        return self.names or [
            Path(path).resolve().name.removesuffix(".safetensors") for path in models(self.model)
        ]

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts() + build.faults_of_building("search", self.search)
        paths, names = models(self.model), self._names
        if len(names) != len(paths):
            found.append(
                ConfigError("names", f"give one for each of {len(paths)} models", shown(self.names))
            )
        elif len(set(names)) < len(names):
            found.append(
                ConfigError(
                    "names",
                    f"give each model another name, as names=[a,b] (now {', '.join(names)})",
                )
            )
        if self.search.get("n_best", 1) > 1:
            found.append(
                ConfigError(
                    "search.n_best", "requests say how many alternatives they want; leave it out"
                )
            )
        return found


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EnsembleSettings):
    """conf/evaluate.yaml."""

    source: str
    reference: str | list[str]
    output: str | None = None
    lexicon: str | None = None
    search: Group
    metric: Group

    def conflicts(self) -> list[ConfigError]:
        found = (
            super().conflicts()
            + build.faults_of_building("search", self.search)
            + self._lexicon(self.lexicon)
        )
        if self.metric.get("name") == "loss":
            found.append(
                ConfigError(
                    "metric.name",
                    "not a comparison of texts; choose bleu, chrf, ter or exact",
                    "loss",
                )
            )
        most = self.search.get("n_best", 1)
        if most > 1:
            found.append(
                ConfigError(
                    "search.n_best",
                    "only the best translation is evaluated; leave it out",
                    shown(most),
                )
            )
        return found


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(EnsembleSettings):
    """conf/score.yaml."""

    source: str
    target: str | None = None
    nbest: str | None = None
    output: str | None = None
    format: Literal["text", "jsonl"]
    normalize: Literal["none", "average"]
    errors: Errors

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts()
        if (self.target is None) == (self.nbest is None):
            remedy = "give one of them, target=FILE (one translation per line) or nbest=FILE (Moses format)"
            found.append(ConfigError("target, nbest", remedy))
        elif self.nbest and (self.format != "text" or self.normalize != "none"):
            remedy = "is written back in its own format, with log-probabilities; leave format and normalize out"
            found.append(ConfigError("nbest", remedy))
        return found


@dataclass(frozen=True, kw_only=True)
class AlignSettings(EnsembleSettings):
    """conf/align.yaml."""

    written: ClassVar[Sequence[str]] = ("output", "attention_map")

    model: Models | None = None  # type: ignore[assignment]  # not with vectors
    vectors: list[str] | None = None
    reverse: Models | None = None
    symmetrize: Symmetrization
    units: Units
    source: str
    target: str
    gold: str | None = None
    output: str | None = None
    format: Literal["pharaoh", "json"]
    attention_map: str | None = None

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts() + map_name(self.attention_map)
        if (self.model is None) == (self.vectors is None):
            found.append(
                ConfigError(
                    "model, vectors", "give one of them, model=RUN_DIR or vectors=[SOURCE,TARGET]"
                )
            )
        elif self.vectors is not None and len(self.vectors) != 2:
            found.append(ConfigError("vectors", "give two files, [SOURCE,TARGET]"))
        elif self.vectors and self.reverse:
            found.append(
                ConfigError("reverse", "vectors already look in both directions; leave it out")
            )
        if self.vectors and self.units == "piece":
            found.append(
                ConfigError("units", "vectors are of words; pieces are a model's", "piece")
            )
        return found

    def idle(self) -> dict[str, str]:
        found = {} if self.vectors else super().idle()
        if not self.vectors and not self.reverse:
            found["symmetrize"] = "there is one direction: give reverse=RUN_DIR too"
        for key in (
            ("device", "precision", "averaging", "shares", "translation.max_source")
            if self.vectors
            else ()
        ):
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
    units: Units = "word"

    def conflicts(self) -> list[ConfigError]:
        return super().conflicts() + map_name(self.explain, "explain")

    def idle(self) -> dict[str, str]:
        return (
            {}
            if self.explain or self.format == "jsonl"
            else {"units": "no words are shown: give explain=FILE.html"}
        )


@dataclass(frozen=True, kw_only=True)
class CiteSettings(Settings):
    """conf/cite.yaml."""

    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class AverageSettings(Settings):
    """conf/average.yaml."""

    models: list[str]
    output: str

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts()
        if len(self.models) < 2:
            found.append(ConfigError("models", "give at least two, as [A,B]", shown(self.models)))
        if not self.output.endswith(".safetensors"):
            found.append(ConfigError("output", "the name must end in .safetensors", self.output))
        elif any(Path(model).resolve() == Path(self.output).resolve() for model in self.models):
            found.append(
                ConfigError("output", "is one of the models; choose another name", self.output)
            )
        return found


@dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """conf/export.yaml."""

    model: str
    format: Literal["onnx", "card", "html"]
    output: str

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts()
        if self.format == "html" and not self.output.endswith(".html"):
            found.append(ConfigError("output", "the name must end in .html", self.output))
        return found


@dataclass(frozen=True, kw_only=True)
class IndexSettings(Settings):
    """conf/index.yaml."""

    model: str
    source: str
    target: str
    output: str
    device: str

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts()
        if not self.output.endswith(".safetensors"):
            found.append(ConfigError("output", "the name must end in .safetensors", self.output))
        return found


def map_name(name: str | None, key: str = "attention_map") -> list[ConfigError]:
    """What is wrong with the name of a picture."""
    if not name:
        return []
    if not name.endswith(ENDINGS):
        return [ConfigError(key, "the name must end in .html, .png or .json", name)]
    pictured = not name.endswith(".png") or installed("matplotlib")
    return [] if pictured else [ConfigError(key, f"{advice('matplotlib')}, or write .html", name)]


def models(value: Models | None) -> list[str]:
    """One path or several as a list."""
    return [value] if isinstance(value, str) else value or []
