"""The settings of what trains: nmt.train, nmt.backtranslate and nmt.classify."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.faults import ConfigError, shown
from nmt.configuration.settings import Settings
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Count, Range, Size
from nmt.model.freezing import freeze
from nmt.model.layers.cells import CellName
from nmt.tokenizer.columns import Columns

Seed = Annotated[int, Range(0, 2**32 - 1)]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Settings of every training."""

    seed: Seed
    run_dir: str | None = None
    device: str
    cell: CellName
    resume: str | None = None
    sweep: Group | None = None
    tracker: Group | None = None
    sizes: Group | None = None
    data: Group
    tokenizer: Group
    batching: Group
    encoder: Group
    optimizer: Group
    schedule: Group
    trainer: Group

    @classmethod
    def impossible(cls, values: Mapping[str, Any], faulty: Set[str]) -> list[ConfigError]:
        return build.impossible(values, faulty)

    @property
    def view(self) -> RunView:
        """The configuration as its parts see it."""
        return build.view(self.values)

    def conflicts(self) -> Iterator[ConfigError]:
        """Combinations that the settings or any part of the run do not allow."""
        yield from super().conflicts()
        run = self.view
        for part in run.parts.values():
            if hasattr(part, "conflicts"):
                yield from part.conflicts(run)

    def idle(self) -> dict[str, str]:
        reasons = super().idle()
        run = self.view
        for part in run.parts.values():
            if hasattr(part, "idle"):
                reasons |= part.idle(run)
        return reasons


@dataclass(frozen=True, kw_only=True)
class TrainSettings(TrainingSettings):
    """Settings of nmt.train: conf/train.yaml."""

    init: str | None = None
    init_vocabulary: Literal["keep", "grow"] = "keep"
    freeze: list[str] | None = None
    vectors: list[str | None] | None = None
    store: Literal["auto", "memory", "disk"] = "auto"
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

    @property
    def columns(self) -> Columns:
        """Columns of a source line; each factor with a single value."""
        run = self.view
        factors = (("",),) * len(run.value("data.factors") or ())
        return Columns(run.sources, factors, picture=run.pictures)

    def conflicts(self) -> Iterator[ConfigError]:
        yield from super().conflicts()
        yield from self._frozen()
        if self.vectors is None:
            return
        run, typed = self.view, shown(self.vectors)
        if len(self.vectors) != 2 or self.vectors == [None, None]:
            yield ConfigError(
                "vectors", "give two files, [SOURCE,TARGET]; null for a language without", typed
            )
        if self.vectors and self.init:
            yield ConfigError(
                "vectors",
                f"the words of init={self.init} have vectors already; leave one of them out",
            )
        if self.vectors[:1] not in ([], [None]) and not run.parts["encoder"].reads_words:
            yield ConfigError("vectors", "there are no source words: give [null,TARGET]", typed)

    def _frozen(self) -> Iterator[ConfigError]:
        """Parts of the network that cannot be left as they are."""
        if not self.freeze:
            return
        tables = {"source_embedding", "target_embedding", "output"}
        if self.init_vocabulary == "grow" and tables & {*self.freeze}:
            yield ConfigError(
                "freeze",
                "the vectors of the new pieces would never be trained (init_vocabulary=grow)",
            )
        with torch.device("meta"):
            network = build.network(self.values, 10, 10, self.columns)
        try:
            freeze(network, self.freeze)
        except UserError as error:
            yield ConfigError("", str(error))

    def idle(self) -> dict[str, str]:
        reasons = {
            **super().idle(),
            "search.n_best": "training keeps the best translation only; give it to nmt.translate",
        }
        if not self.init:
            reasons["init_vocabulary"] = "there is no init=RUN_DIR"
        return reasons


@dataclass(frozen=True, kw_only=True)
class BacktranslateSettings(TrainSettings):
    """Settings of nmt.backtranslate: conf/backtranslate.yaml."""

    synthetic: Group

    def conflicts(self) -> Iterator[ConfigError]:
        yield from super().conflicts()
        if self.run_dir is None:
            yield ConfigError(
                "run_dir",
                "name a folder: everything is kept there, and the same command goes on in it",
            )
        if self.resume:
            yield ConfigError(
                "resume", "the same command goes on where it stopped; leave it out", self.resume
            )
        columns = self.columns
        if not columns.plain or columns.sources > 1 or self.data.get("alignment"):
            yield ConfigError(
                "data",
                "back-translation makes plain texts: one source, no factors, alignments or pictures",
            )


@dataclass(frozen=True, kw_only=True)
class ClassifySettings(TrainingSettings):
    """Settings of nmt.classify: conf/classify.yaml."""

    choose_by: Literal["macro_f1", "accuracy", "loss"]
    max_tokens: Size
    vectors: str | None = None
    freeze: bool = False
    network: Group
    pooling: Group

    def conflicts(self) -> Iterator[ConfigError]:
        yield from super().conflicts()
        if self.freeze and not self.vectors:
            yield ConfigError("freeze", "there is nothing to freeze without vectors=FILE", "true")
