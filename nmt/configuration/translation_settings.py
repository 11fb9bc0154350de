"""Settings of the commands that translate: nmt.translate, nmt.evaluate and nmt.serve."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from nmt.components import Group
from nmt.configuration.check import faults_of_building
from nmt.configuration.model_settings import EnsembleSettings, Models, ModelSettings
from nmt.data import as_list
from nmt.data.text_encoding import Errors
from nmt.drawing import FIGURES, unwritable
from nmt.foundation.part_limits import ConfigError, broken, idle_keys
from nmt.foundation.ranges import Count, NonNegative, Positive, Range, Size
from nmt.inference.output_formats import ONE_BEST, FormatName
from nmt.inference.shared_output import WHOLE, JobShare, parse_job
from nmt.storage.checkpoint import model_name
from nmt.tokenizer.words import Units

MOST_COMPARED = 3
"""Maximum number of models in `compare`; the HTML page has room for one more attention map, that of
the model that translates."""


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
        # Different spellings of a path may name the same model.
        compared = [os.path.realpath(name) for name in as_list(self.compare)]
        main = {os.path.realpath(name) for name in as_list(self.model)}
        return [
            *super().conflicts(),
            *_search_errors(self.search, only_best if self.format in ONE_BEST else None),
            *unwritable("attention_map", self.attention_map),
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
                    len({*compared, *main}) < len(compared) + len(main),
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
        has_words = self.attention_map or self.format in ("jsonl", "pharaoh")
        return super().idle() | idle_keys(
            (not self.launcher, "needs launcher=ray", "jobs"),
            (
                not (self.attention_map or "").endswith(FIGURES),
                "needs an image, attention_map=FILE.pdf, .svg or .png",
                "figure_width",
                "font_size",
            ),
            (
                not has_words,
                "needs attention_map=FILE.html, format=jsonl or format=pharaoh",
                "units",
            ),
        )


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
            *_search_errors(self.search, "must be 1, since only the best translation is evaluated"),
            *broken(
                (self.metric.get("name") == "loss", "metric.name", no_text, "loss"),
                (self.reference == [], "reference", "give a file, or several as [A,B]", []),
            ),
        ]


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
        return self.names or list(map(model_name, as_list(self.model)))

    def conflicts(self) -> Iterable[ConfigError]:
        per_request = "must be 1, since requests set the number of alternatives; leave this key out"
        count = len(as_list(self.model))
        names = self._names
        return [
            *super().conflicts(),
            *_search_errors(self.search, per_request),
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


def _search_errors(search: Group, one_best: str | None) -> Iterable[ConfigError]:
    """Returns errors for search settings that a command does not support.

    search: configuration group of the search
    one_best: reason why the search must return a single hypothesis; None if it may return several
    """
    n_best = search.get("n_best", 1)
    return [
        *faults_of_building("search", search),
        *broken((one_best and n_best > 1, "search.n_best", str(one_best), n_best)),
    ]
