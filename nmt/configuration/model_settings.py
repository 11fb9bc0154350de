"""Settings of the commands that use trained models, such as nmt.translate and nmt.align."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from nmt.components import Group
from nmt.configuration.check import faults_of_building
from nmt.configuration.settings import Settings
from nmt.data import as_list
from nmt.data.text_encoding import Errors
from nmt.data.word_aligner import AlignerName
from nmt.drawing import FIGURES
from nmt.foundation.extras import advice, installed
from nmt.foundation.part_limits import ConfigError, broken
from nmt.foundation.ranges import Count, NonNegative, Positive, Range, Size
from nmt.inference.model_step import Averaging
from nmt.inference.output_formats import ONE_BEST, FormatName
from nmt.inference.shared_output import WHOLE, JobShare, parse_job
from nmt.inference.word_alignment import Symmetrization
from nmt.tokenizer.words import Units

Models = str | list[str]
"""Type of a key that names models: a run folder, a checkpoint file, or a list for an ensemble."""
ENDINGS = (".html", *FIGURES, ".json")
"""File extensions that a file with attention maps may have."""
MOST_COMPARED = 3
"""Maximum number of models in `compare`; the HTML page has room for one more attention map, that of
the model that translates."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Settings of every command that uses a trained translation model."""

    model: Models
    device: str
    precision: Literal["float32", "bfloat16", "int8", "auto"]
    translation: Group

    def conflicts(self) -> Iterable[ConfigError]:
        return [
            *super().conflicts(),
            *broken((self.model == [], "model", "give a run folder, or several as [A,B,C]", [])),
        ]

    def _search(self, search: Group, one_best: str | None) -> Iterable[ConfigError]:
        """Returns errors for search settings that a command does not support.

        search: configuration group of the search
        one_best: reason why the search must return a single hypothesis; None if it may return
            several
        """
        n_best = search.get("n_best", 1)
        return [
            *faults_of_building("search", search),
            *broken((one_best and n_best > 1, "search.n_best", str(one_best), n_best)),
        ]


@dataclass(frozen=True, kw_only=True)
class EnsembleSettings(ModelSettings):
    """Settings of commands that accept an ensemble of models."""

    averaging: Averaging
    shares: list[Positive] | None = None

    def conflicts(self) -> Iterable[ConfigError]:
        count = len(as_list(self.model))
        lexicon = getattr(self, "lexicon", None)  # only some commands have this key
        return [
            *super().conflicts(),
            *broken(
                (
                    self.shares is not None and count and len(self.shares) != count,
                    "shares",
                    f"must have one positive ensemble weight for each of the {count} models",
                    self.shares,
                ),
                (
                    lexicon and self.translation.get("unknown") != "copy",
                    "lexicon",
                    "has an effect only with translation.unknown=copy, which then inserts "
                    "translations from the lexicon instead of source words; set "
                    "translation.unknown=copy",
                    lexicon,
                ),
            ),
        ]

    def idle(self) -> dict[str, str]:
        if len(as_list(self.model)) > 1:
            return {}
        why = "needs an ensemble of several models, such as model=[A,B]"
        return {"averaging": why, "shares": why}


@dataclass(frozen=True, kw_only=True)
class TranslateSettings(EnsembleSettings):
    """Settings of nmt.translate; conf/translate.yaml describes the keys."""

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
    figure_width: Positive | None = None
    font_size: Positive | None = None
    job: str | None = None
    launcher: Literal["ray"] | None = None
    jobs: Size = 1
    search: Group

    @property
    def share(self) -> JobShare:
        """Index of this process and number of processes that share the input, as set by `job`."""
        return parse_job(self.job or "1/1") or WHOLE

    def conflicts(self) -> Iterable[ConfigError]:
        only_best = "must be 1 unless format=jsonl or format=moses"
        compared = as_list(self.compare)
        main = as_list(self.model)
        return [
            *super().conflicts(),
            *self._search(self.search, only_best if self.format in ONE_BEST else None),
            *map_name("attention_map", self.attention_map),
            *self._job_conflicts(),
            *broken(
                (
                    compared and not self.attention_map,
                    "compare",
                    "the comparison of attention maps needs attention_map=FILE.html",
                ),
                (
                    len(compared) > MOST_COMPARED,
                    "compare",
                    f"must name at most {MOST_COMPARED} models, not counting the model that "
                    "translates the input",
                ),
                (
                    len({*compared, *main}) < len(compared) + len(set(main)),
                    "compare",
                    "must contain neither duplicates nor the model that translates the input",
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
                    "cannot be combined with attention_map, because the map must also contain the "
                    "sentences translated before the interruption; leave attention_map out",
                    True,
                ),
                (
                    (self.prefix or self.constraints) and not self.input,
                    "prefix and constraints",
                    "constraints and prefixes refer to the lines of an input file; add input=FILE",
                ),
            ),
        ]

    def _job_conflicts(self) -> Iterable[ConfigError]:
        """Returns errors for the settings job, jobs and launcher, which divide the work among
        processes.
        """
        return broken(
            (
                self.job and not parse_job(self.job),
                "job",
                "must be K/N with 1 <= K <= N, for example 1/8",
                self.job,
            ),
            (
                self.job and not str(self.output).endswith("/"),
                "job",
                "each job writes its own files into the output folder; set output=FOLDER/",
                self.job,
            ),
            (
                self.launcher and (self.job or not (self.input and self.output)),
                "launcher",
                "needs input=FILE, and either output=FILE or output=FOLDER/; cannot be combined "
                "with job=K/N",
                self.launcher,
            ),
        )

    def idle(self) -> dict[str, str]:
        reasons = super().idle()
        if not self.launcher:
            reasons["jobs"] = "needs launcher=ray"
        if not (self.attention_map or "").endswith(FIGURES):
            why = "needs an image, attention_map=FILE.pdf, .svg or .png"
            reasons |= {"figure_width": why, "font_size": why}
        if not self.attention_map and self.format not in ("jsonl", "pharaoh"):
            reasons["units"] = "needs attention_map=FILE.html, format=jsonl or format=pharaoh"
        return reasons


@dataclass(frozen=True, kw_only=True)
class ServeSettings(ModelSettings):
    """Settings of nmt.serve; conf/serve.yaml describes the keys."""

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
    access_log: bool
    log_texts: bool
    workers: Size
    drain: NonNegative
    proxies: list[str] | None = None
    metrics_key: bool
    search: Group

    @property
    def called(self) -> dict[str, str]:
        """Paths of the served models, by model name."""
        return dict(zip(self._names, as_list(self.model), strict=True))

    @property
    def _names(self) -> list[str]:
        return self.names or [
            Path(path).resolve().name.removesuffix(".safetensors") for path in as_list(self.model)
        ]

    def conflicts(self) -> Iterable[ConfigError]:
        per_request = "must be 1, since requests set the number of alternatives; leave this key out"
        count = len(as_list(self.model))
        names = self._names
        return [
            *super().conflicts(),
            *self._search(self.search, per_request),
            *broken(
                (
                    len(names) != count,
                    "names",
                    f"must have one name for each of the {count} models",
                    self.names,
                ),
                (
                    len(names) == count > len(set(names)),
                    "names",
                    f"must be unique, got {', '.join(names)}; set names=[a,b]",
                ),
                (
                    self.metrics_key and self.keys is None,
                    "metrics_key",
                    "needs keys=FILE",
                    True,
                ),
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EnsembleSettings):
    """Settings of nmt.evaluate; conf/evaluate.yaml describes the keys."""

    source: str
    reference: str | list[str]
    output: str | None = None
    lexicon: str | None = None
    search: Group
    metric: Group

    def conflicts(self) -> Iterable[ConfigError]:
        no_text = "does not compare translations; choose bleu, chrf, ter or exact"
        return [
            *super().conflicts(),
            *self._search(self.search, "must be 1, since only the best translation is evaluated"),
            *broken((self.metric.get("name") == "loss", "metric.name", no_text, "loss")),
        ]


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(EnsembleSettings):
    """Settings of nmt.score; conf/score.yaml describes the keys."""

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
                    "set exactly one: target=FILE (one translation per line) or nbest=FILE "
                    "(Moses format)",
                ),
                (
                    self.nbest
                    and self.target is None
                    and (self.format != "text" or self.normalize != "none"),
                    "nbest",
                    "the output for an n-best list has a fixed format with log-probabilities; leave "
                    "the keys format and normalize out",
                ),
            ),
        ]


MODEL_KEYS = ("device", "precision", "averaging", "shares", "translation.max_source")
"""Keys of nmt.align that only apply to alignment with a model."""


@dataclass(frozen=True, kw_only=True)
class AlignSettings(EnsembleSettings):
    """Settings of nmt.align; conf/align.yaml describes the keys."""

    model: Models | None = None  # type: ignore[assignment]  # optional in this command
    vectors: list[str] | None = None
    links: str | None = None
    method: Literal["attention", AlignerName]
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
        """Name of the statistical word aligner; None if attention is used."""
        return None if self.method == "attention" else self.method

    def conflicts(self) -> Iterable[ConfigError]:
        return [
            *super().conflicts(),
            *map_name("attention_map", self.attention_map),
            *broken(
                (
                    [self.model, self.vectors, self.links, self._aligner].count(None) != 3,
                    "model, vectors, links",
                    "set exactly one: model=RUN_DIR, vectors=[SOURCE,TARGET], links=FILE, or "
                    "method=ibm1 or hmm",
                ),
                (
                    self.train is not None and len(self.train) != 2,
                    "train",
                    "must be two files, [SOURCE,TARGET]",
                ),
                (
                    self.links and not self.gold,
                    "links",
                    "needs gold=FILE, with which the links are compared",
                ),
                (
                    self.vectors is not None and len(self.vectors) != 2,
                    "vectors",
                    "must be two files, [SOURCE,TARGET]",
                ),
                (
                    (self.vectors or self._aligner) and self.reverse,
                    "reverse",
                    "cannot be combined with the key vectors, method=ibm1 or method=hmm, which "
                    "align in both directions; leave reverse out",
                ),
                (
                    (self.vectors or self._aligner) and self.units == "piece",
                    "units",
                    "not supported with the key vectors, method=ibm1 or method=hmm, which align "
                    "words; leave units out",
                    "piece",
                ),
            ),
        ]

    def idle(self) -> dict[str, str]:
        if self.links:
            others = ("symmetrize", "units", "output", "format", "attention_map", "reverse")
            why = "with links=FILE, only the keys gold, source and target are used"
            return dict.fromkeys((*others, "train", *MODEL_KEYS), why)
        if self._aligner:
            return dict.fromkeys(MODEL_KEYS, f"method={self.method} needs no model")
        reasons = {} if self.vectors else super().idle()
        reasons["train"] = "needs method=ibm1 or method=hmm"
        if self.vectors:
            return {**reasons, **dict.fromkeys(MODEL_KEYS, "vectors need no model")}
        if not self.reverse:
            reasons["symmetrize"] = (
                "symmetrisation needs a second alignment direction; set reverse=RUN_DIR"
            )
        return reasons


@dataclass(frozen=True, kw_only=True)
class LabelSettings(Settings):
    """Settings of nmt.label; conf/label.yaml describes the keys."""

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
        return {"units": "needs explain=FILE.html or format=jsonl"}


def map_name(key: str, name: str | None) -> Iterable[ConfigError]:
    """Yields an error if an attention map cannot be written to the named file."""
    file = name or ENDINGS[0]
    missing = file.endswith(FIGURES) and not installed("matplotlib")
    return broken(
        (not file.endswith(ENDINGS), key, "must end in .html, .png, .pdf, .svg or .json", name),
        (missing, key, f"{advice('matplotlib')}, or write a .html file", name),
    )
