"""Settings of commands that use trained models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.faults import ConfigError, broken
from nmt.configuration.settings import Settings
from nmt.data import as_list
from nmt.data.lines import Errors
from nmt.data.word_aligner import AlignerName
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
"""Suffixes of files for attention maps."""
MOST_COMPARED = 3
"""Maximal number of models beside the one that translates; more do not fit on a page."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Settings of every command with a trained translation model."""

    model: Models
    device: str
    precision: GenerationPrecision
    translation: Group

    def conflicts(self) -> Iterable[ConfigError]:
        empty = "give a run directory, or several as [A,B,C]"
        return [*super().conflicts(), *broken((self.model == [], "model", empty, []))]

    def _search(self, search: Group, one_best: str | None) -> Iterable[ConfigError]:
        """Errors of a search.

        search: group of the configuration
        one_best: reason why the search must return one hypothesis; None if it may return several
        """
        n_best = search.get("n_best", 1)
        return [
            *build.faults_of_building("search", search),
            *broken((one_best and n_best > 1, "search.n_best", str(one_best), n_best)),
        ]


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings(ModelSettings):
    """Settings of commands in which several models may translate as one."""

    averaging: Averaging
    shares: list[Positive] | None = None

    def conflicts(self) -> Iterable[ConfigError]:
        count = len(models(self.model))
        lexicon = getattr(self, "lexicon", None)  # some commands have no such key
        return [
            *super().conflicts(),
            *broken(
                (
                    self.shares is not None and count and len(self.shares) != count,
                    "shares",
                    f"give one positive number for each of {count} models",
                    self.shares,
                ),
                (
                    lexicon and self.translation.get("unknown") != "copy",
                    "lexicon",
                    "is for unknown words: set translation.unknown=copy too",
                    lexicon,
                ),
            ),
        ]

    def idle(self) -> dict[str, str]:
        if len(models(self.model)) > 1:
            return {}
        why = "there is only one model; model=[A,B] is an ensemble"
        return {"averaging": why, "shares": why}


@dataclass(frozen=True, kw_only=True)
class TranslateSettings(EnsembleSettings):
    """Settings of nmt.translate: conf/translate.yaml."""

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

    def conflicts(self) -> Iterable[ConfigError]:
        only_best = "shown by format=jsonl and format=moses only"
        compared = models(self.compare)
        main = models(self.model)
        return [
            *super().conflicts(),
            *self._search(self.search, only_best if self.format in ONE_BEST else None),
            *map_name("attention_map", self.attention_map),
            *broken(
                (
                    compared and not self.attention_map,
                    "compare",
                    "draws further models in attention_map=FILE.html; give attention_map too",
                ),
                (
                    len(compared) > MOST_COMPARED,
                    "compare",
                    "give at most three models beside the one that translates",
                ),
                (
                    len({*compared, *main}) < len(compared) + len(set(main)),
                    "compare",
                    "give each model once, and not the one that translates",
                ),
                (
                    self.resume and not (self.output and self.input),
                    "resume",
                    "needs input=FILE and output=FILE",
                    True,
                ),
                (
                    self.resume and self.attention_map,
                    "resume",
                    "an attention map needs all sentences; leave attention_map out",
                    True,
                ),
                (
                    (self.prefix or self.constraints) and not self.input,
                    "prefix and constraints",
                    "belong to the lines of a file; give input=FILE",
                ),
            ),
        ]

    def idle(self) -> dict[str, str]:
        reasons = super().idle()
        if not self.attention_map and self.format not in ("jsonl", "pharaoh"):
            reasons["units"] = (
                "no alignment is shown: give attention_map=FILE.html, format=jsonl or pharaoh"
            )
        return reasons


@dataclass(frozen=True, kw_only=True)
class ServeSettings(ModelSettings):
    """Settings of nmt.serve: conf/serve.yaml."""

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
        """Paths of the models by their names."""
        return dict(zip(self._names, models(self.model), strict=True))

    @property
    def _names(self) -> list[str]:
        return self.names or [
            Path(path).resolve().name.removesuffix(".safetensors") for path in models(self.model)
        ]

    def conflicts(self) -> Iterable[ConfigError]:
        per_request = "requests set the number of alternatives; leave it out"
        count = len(models(self.model))
        names = self._names
        return [
            *super().conflicts(),
            *self._search(self.search, per_request),
            *broken(
                (len(names) != count, "names", f"give one for each of {count} models", self.names),
                (
                    len(names) == count > len(set(names)),
                    "names",
                    f"give each model another name, as names=[a,b] (now {', '.join(names)})",
                ),
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EnsembleSettings):
    """Settings of nmt.evaluate: conf/evaluate.yaml."""

    source: str
    reference: str | list[str]
    output: str | None = None
    lexicon: str | None = None
    search: Group
    metric: Group

    def conflicts(self) -> Iterable[ConfigError]:
        no_text = "not a comparison of texts; choose bleu, chrf, ter or exact"
        return [
            *super().conflicts(),
            *self._search(self.search, "only the best translation is evaluated; leave it out"),
            *broken((self.metric.get("name") == "loss", "metric.name", no_text, "loss")),
        ]


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(EnsembleSettings):
    """Settings of nmt.score: conf/score.yaml."""

    source: str
    target: str | None = None
    nbest: str | None = None
    output: str | None = None
    format: Literal["text", "jsonl"]
    normalize: Literal["none", "average"]
    errors: Errors

    def conflicts(self) -> Iterable[ConfigError]:
        return [
            *super().conflicts(),
            *broken(
                (
                    (self.target is None) == (self.nbest is None),
                    "target, nbest",
                    "give either target=FILE (one translation per line) or nbest=FILE "
                    "(Moses format)",
                ),
                (
                    self.nbest
                    and self.target is None
                    and (self.format != "text" or self.normalize != "none"),
                    "nbest",
                    "is written back in its own format, with log-probabilities; "
                    "leave format and normalize out",
                ),
            ),
        ]


MODEL_KEYS = ("device", "precision", "averaging", "shares", "translation.max_source")
"""Keys of nmt.align that belong to a model."""


@dataclass(frozen=True, kw_only=True)
class AlignSettings(EnsembleSettings):
    """Settings of nmt.align: conf/align.yaml."""

    written: ClassVar[Sequence[str]] = ("output", "attention_map")

    model: Models | None = None  # type: ignore[assignment]  # not with vectors
    vectors: list[str] | None = None
    links: str | None = None
    method: Literal["attention"] | AlignerName
    train: list[str] | None = None
    reverse: Models | None = None
    symmetrize: Symmetrization
    units: Units
    source: str
    target: str
    gold: str | None = None
    output: str | None = None
    format: Literal["pharaoh", "json"]
    attention_map: str | None = None

    @property
    def _aligner(self) -> str | None:
        """The word aligner, if one is used."""
        return None if self.method == "attention" else self.method

    def conflicts(self) -> Iterable[ConfigError]:
        return [
            *super().conflicts(),
            *map_name("attention_map", self.attention_map),
            *broken(
                (
                    [self.model, self.vectors, self.links, self._aligner].count(None) != 3,
                    "model, vectors, links",
                    "give one of them, model=RUN_DIR, vectors=[SOURCE,TARGET] or links=FILE, "
                    "or method=ibm1 or hmm alone",
                ),
                (
                    self.train is not None and len(self.train) != 2,
                    "train",
                    "give two files, [SOURCE,TARGET]",
                ),
                (self.links and not self.gold, "links", "are compared with gold=FILE; give it too"),
                (
                    self.vectors is not None and len(self.vectors) != 2,
                    "vectors",
                    "give two files, [SOURCE,TARGET]",
                ),
                (
                    (self.vectors or self._aligner) and self.reverse,
                    "reverse",
                    "vectors, ibm1 and hmm align in both directions; leave it out",
                ),
                (
                    (self.vectors or self._aligner) and self.units == "piece",
                    "units",
                    "vectors, ibm1 and hmm are of words, not of pieces; leave it out",
                    "piece",
                ),
            ),
        ]

    def idle(self) -> dict[str, str]:
        if self.links:
            others = ("symmetrize", "units", "output", "format", "attention_map", "reverse")
            why = "with links=FILE, the only other inputs are gold=FILE and the texts"
            return dict.fromkeys((*others, "train", *MODEL_KEYS), why)
        if self._aligner:
            return dict.fromkeys(MODEL_KEYS, f"method={self.method} needs no model")
        reasons = {} if self.vectors else super().idle()
        reasons["train"] = "attention is trained already: give method=ibm1 or hmm"
        if self.vectors:
            return {**reasons, **dict.fromkeys(MODEL_KEYS, "vectors need no model")}
        if not self.reverse:
            reasons["symmetrize"] = "there is one direction: give reverse=RUN_DIR too"
        return reasons


@dataclass(frozen=True, kw_only=True)
class LabelSettings(Settings):
    """Settings of nmt.label: conf/label.yaml."""

    written: ClassVar[Sequence[str]] = ("output", "explain")

    model: str
    device: str
    input: str | None = None
    output: str | None = None
    format: Literal["text", "jsonl"]
    errors: Errors
    explain: str | None = None
    units: Units = "word"

    def conflicts(self) -> Iterable[ConfigError]:
        return [*super().conflicts(), *map_name("explain", self.explain)]

    def idle(self) -> dict[str, str]:
        if self.explain or self.format == "jsonl":
            return {}
        return {"units": "no words are shown: give explain=FILE.html"}


@dataclass(frozen=True, kw_only=True)
class CheckAttentionSettings(Settings):
    """Settings of nmt.check_attention: conf/check_attention.yaml."""

    functions: list[str]


@dataclass(frozen=True, kw_only=True)
class CiteSettings(Settings):
    """Settings of nmt.cite: conf/cite.yaml."""

    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class AverageSettings(Settings):
    """Settings of nmt.average: conf/average.yaml."""

    models: list[str]
    output: str

    def conflicts(self) -> Iterable[ConfigError]:
        output = Path(self.output).resolve()
        return [
            *super().conflicts(),
            *ending(self.output, ".safetensors"),
            *broken(
                (len(self.models) < 2, "models", "give at least two, as [A,B]", self.models),
                (
                    output in [Path(model).resolve() for model in self.models],
                    "output",
                    "is one of the models; choose another name",
                    self.output,
                ),
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class ExportSettings(Settings):
    """Settings of nmt.export: conf/export.yaml."""

    model: str
    format: Literal["onnx", "card", "html"]
    output: str

    def conflicts(self) -> Iterable[ConfigError]:
        yield from super().conflicts()
        if self.format == "html":
            yield from ending(self.output, ".html")


@dataclass(frozen=True, kw_only=True)
class IndexSettings(Settings):
    """Settings of nmt.index: conf/index.yaml."""

    model: str
    source: str
    target: str
    output: str
    device: str

    def conflicts(self) -> Iterable[ConfigError]:
        return [*super().conflicts(), *ending(self.output, ".safetensors")]


def ending(output: str, suffix: str) -> Iterable[ConfigError]:
    """An error if the name of an output has another suffix."""
    return broken((not output.endswith(suffix), "output", f"the name must end in {suffix}", output))


def map_name(key: str, name: str | None) -> Iterable[ConfigError]:
    """An error if an attention map cannot be written to a file of this name."""
    file = name or ENDINGS[0]
    missing = file.endswith(".png") and not installed("matplotlib")
    return broken(
        (not file.endswith(ENDINGS), key, "the name must end in .html, .png or .json", name),
        (missing, key, f"{advice('matplotlib')}, or write .html", name),
    )


def models(value: Models | None) -> list[str]:
    """The paths of one model or several; an empty list for None."""
    return as_list(value or [])
