"""Settings of the training commands nmt.train, nmt.backtranslate and nmt.classify."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import torch

from nmt import components
from nmt.components import Group
from nmt.configuration.check import raised_errors
from nmt.configuration.settings import Settings
from nmt.foundation.configurations import flat
from nmt.foundation.part_limits import ConfigError, RunView, broken, idle_keys
from nmt.foundation.ranges import Count, Range, Ratio, Size
from nmt.model.freezing import freeze, frozen_tables
from nmt.model.layers.cells import CellName, cell_class
from nmt.tokenizer.columns import Columns


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Base class of the settings of training commands."""

    trains: ClassVar[bool] = True

    seed: Annotated[int, Range(0, 2**32 - 1)]
    run_dir: str | None = None
    device: str
    cell: CellName
    resume: str | None = None
    repeats: str | None = None
    final_test: Literal["auto"] | bool = "auto"
    time_budget: str | float | None = None
    sweep: Group | None = None
    tracker: Group | None = None
    callback: Group | None = None
    sizes: Group | None = None
    data: Group
    tokenizer: Group
    batching: Group
    encoder: Group
    optimizer: Group
    schedule: Group
    trainer: Group

    @cached_property
    def view(self) -> RunView:
        """Values and selected classes that components read to check their compatibility."""
        return components.view(self.values)

    @property
    def parts(self) -> list[Any]:
        """Classes selected by configuration groups and by the keys named `cell`, each once."""
        # `cell` is not a group; encoder, decoder and pooling may have different cells.
        keys = flat(self.values).items()
        cells = [cell_class(value) for key, value in keys if key.rpartition(".")[2] == "cell"]
        return list(dict.fromkeys([*self.view.parts.values(), *cells]))

    def conflicts(self) -> Iterable[ConfigError]:
        """Yields an error for each combination of values that the command or a component
        rejects."""
        yield from super().conflicts()
        for limited in self.parts:
            if hasattr(limited, "conflicts"):
                yield from limited.conflicts(self.view)

    def idle(self) -> dict[str, str]:
        reasons = super().idle()
        for limited in self.parts:
            if hasattr(limited, "idle"):
                reasons |= limited.idle(self.view)
        return reasons


@dataclass(frozen=True, kw_only=True)
class TrainSettings(TrainingSettings):
    """Settings of nmt.train; conf/train.yaml describes the keys."""

    init: str | None = None
    init_vocabulary: Literal["keep", "grow"] = "keep"
    freeze: list[str] | None = None
    vectors: list[str | None] | None = None
    store: Literal["auto", "memory", "disk"] = "auto"
    copied_pairs: Ratio = 0.0
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
        """Column layout of the source lines.

        The values of a factor are known only when the data is read; a placeholder stands for them.
        """
        run = self.view
        factors = (("",),) * len(run.value("data.factors") or ())
        return Columns(run.sources, factors, picture=run.pictures)

    @property
    def has_plain_pairs(self) -> bool:
        """Whether the data consists of one source text and one target text, without alignments."""
        columns = self.columns
        return columns.plain and columns.sources == 1 and not self.data.get("alignment")

    def conflicts(self) -> Iterable[ConfigError]:
        vectors = self.vectors or []
        reads_words = self.view.parts["encoder"].reads_words
        yield from super().conflicts()
        yield from broken(
            *(
                (value is None, f"translation.{key}", "must have a value; leave this key out", None)
                for key, value in self.translation.items()
            ),
            (
                self.copied_pairs and not self.has_plain_pairs,
                "copied_pairs",
                "supported only for one source text per sentence pair, without factors, alignments "
                "or images; set copied_pairs=0",
                self.copied_pairs,
            ),
            (
                self.copied_pairs and self.filters.get("drop_identical"),
                "copied_pairs",
                "filters.drop_identical=true would drop the copied pairs; set copied_pairs=0, or "
                "leave out filters.drop_identical",
                self.copied_pairs,
            ),
            (
                self.vectors is not None and (len(vectors) != 2 or vectors == [None, None]),
                "vectors",
                "must be two files, [SOURCE,TARGET], with null for a language without vectors",
                vectors,
            ),
            (
                vectors and self.init,
                "vectors",
                f"cannot be combined with init={self.init}, which contains trained embeddings; "
                "leave one out",
            ),
            (
                any(vectors[:1]) and not reads_words,
                "vectors",
                "this encoder reads images, not words; set vectors=[null,TARGET]",
                vectors,
            ),
        )
        if self.freeze:
            yield from self._frozen(self.freeze)

    def _frozen(self, names: Sequence[str]) -> Iterable[ConfigError]:
        """Yields errors if a component cannot be frozen, or if new subwords would never be
        trained."""
        # Checks the names on a network without allocated weights.
        with torch.device("meta"):
            # The vocabulary sizes have no effect on the names.
            network = components.network(self.values, 10, 10, self.columns)
        yield from raised_errors(freeze, network, names)
        yield from broken(
            (
                self.init_vocabulary == "grow" and frozen_tables(network),
                "freeze",
                "contains embeddings or output weights, so the new subwords of "
                "init_vocabulary=grow would not be trained; leave out freeze or init_vocabulary",
                names,
            )
        )

    def idle(self) -> dict[str, str]:
        one_best = "training uses only the best translation; set this key in nmt.translate"
        return super().idle() | idle_keys(
            (True, one_best, "search.n_best"),
            (not self.init, "needs init=RUN_DIR", "init_vocabulary"),
        )


@dataclass(frozen=True, kw_only=True)
class BacktranslateSettings(TrainSettings):
    """Settings of nmt.backtranslate; conf/backtranslate.yaml describes the keys."""

    synthetic: Group

    def conflicts(self) -> Iterable[ConfigError]:
        return [
            *super().conflicts(),
            *broken(
                (
                    self.run_dir is None,
                    "run_dir",
                    "must be set to a folder for all results; after an interruption, the same "
                    "command continues there",
                ),
                (
                    self.resume,
                    "resume",
                    "not supported by nmt.backtranslate; repeat the command without this key to "
                    "resume",
                    self.resume,
                ),
                *(
                    (
                        "/" in str(self.data.get(side)),
                        f"data.{side}",
                        "back-translation writes files with this name as extension, so the name "
                        "must not contain /; rename the column",
                        self.data.get(side),
                    )
                    for side in ("source", "target")
                ),
                (
                    not self.has_plain_pairs,
                    "data",
                    "back-translation supports only one source text per sentence pair, without "
                    "factors, alignments or images",
                ),
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class ClassifySettings(TrainingSettings):
    """Settings of nmt.classify; conf/classify.yaml describes the keys."""

    choose_by: Literal["macro_f1", "accuracy", "loss"]
    max_tokens: Size
    vectors: str | None = None
    freeze: bool = False
    network: Group
    pooling: Group

    def conflicts(self) -> Iterable[ConfigError]:
        yield from super().conflicts()
        nothing = "needs vectors=FILE"
        yield from broken((self.freeze and not self.vectors, "freeze", nothing, True))
