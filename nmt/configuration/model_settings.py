"""Settings of the commands that use trained models: base classes, nmt.score, nmt.align and
nmt.label."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from nmt.components import Group
from nmt.configuration.settings import Settings
from nmt.data import as_list
from nmt.data.text_encoding import Errors
from nmt.data.word_aligner import AlignerName
from nmt.drawing import unwritable
from nmt.foundation.part_limits import ConfigError, broken, idle_keys
from nmt.foundation.ranges import Positive
from nmt.inference.model_step import Averaging
from nmt.inference.word_alignment import Symmetrization
from nmt.tokenizer.words import Units

Models = str | list[str]
"""Type of a key that names models: a run folder, a checkpoint file, or a list for an ensemble."""
MODEL_KEYS = ("device", "precision", "averaging", "shares", "translation.max_source")
"""Keys of nmt.align that only apply to alignment with a model."""
OUTPUT_KEYS = ("symmetrize", "units", "output", "format", "attention_map", "reverse", "train")
"""Keys of nmt.align that only apply if the command computes alignment links, instead of evaluating
the links of a file (links=FILE)."""


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Settings of every command that uses a trained translation model."""

    read: ClassVar[Sequence[str]] = (*Settings.read, "model", "reverse")
    model: Models
    device: str
    precision: Literal["float32", "bfloat16", "int8", "auto"]
    translation: Group

    def conflicts(self) -> Iterable[ConfigError]:
        return [
            *super().conflicts(),
            *broken((self.model == [], "model", "give a run folder, or several as [A,B,C]", [])),
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
                    f"must contain one positive ensemble weight for each of the {count} models",
                    self.shares,
                ),
                (
                    # With null, the model's own setting decides when it is loaded.
                    lexicon and self.translation.get("unknown") not in ("copy", None),
                    "lexicon",
                    "has an effect only with translation.unknown=copy, which then inserts "
                    "translations from the lexicon instead of source words; set "
                    "translation.unknown=copy",
                    lexicon,
                ),
            ),
        ]

    def idle(self) -> dict[str, str]:
        is_single = len(as_list(self.model)) <= 1
        why = "needs an ensemble of several models, such as model=[A,B]"
        return idle_keys((is_single, why, "averaging", "shares"))


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

    def idle(self) -> dict[str, str]:
        why = "needs format=text; with format=jsonl, each token has its log-probability"
        return super().idle() | idle_keys((self.format == "jsonl", why, "normalize"))

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
                    "the output for an n-best list has a fixed format with log-probabilities; "
                    "leave the keys format and normalize out",
                ),
            ),
        ]


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
        """Name of the statistical word aligner; None with method=attention, the default."""
        return None if self.method == "attention" else self.method

    def conflicts(self) -> Iterable[ConfigError]:
        return [
            *super().conflicts(),
            *unwritable("attention_map", self.attention_map),
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
                    "cannot be combined with vectors=…, method=ibm1 or method=hmm, which already "
                    "align in both directions; leave reverse out",
                ),
                (
                    (self.vectors or self._aligner) and self.units == "piece",
                    "units",
                    "cannot be combined with vectors=…, method=ibm1 or method=hmm, which align "
                    "words; leave units out",
                    "piece",
                ),
            ),
        ]

    def idle(self) -> dict[str, str]:
        is_by_attention = not (self.vectors or self._aligner)
        return super().idle() | idle_keys(
            (
                self.links,
                "with links=FILE, only the keys gold, source and target are used",
                *MODEL_KEYS,
                *OUTPUT_KEYS,
            ),
            (self._aligner, f"method={self.method} needs no model", *MODEL_KEYS),
            (self.vectors, "vectors need no model", *MODEL_KEYS),
            (not self._aligner, "needs method=ibm1 or method=hmm", "train"),
            (
                is_by_attention and not self.reverse,
                "symmetrisation needs a second alignment direction; set reverse=RUN_DIR",
                "symmetrize",
            ),
        )


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
        return [*super().conflicts(), *unwritable("explain", self.explain)]

    def idle(self) -> dict[str, str]:
        has_words = self.explain or self.format == "jsonl"
        return idle_keys((not has_words, "needs explain=FILE.html or format=jsonl", "units"))
