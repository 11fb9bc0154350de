"""The settings of what trains: nmt.train and nmt.classify."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from nmt.configuration import build
from nmt.configuration.build import Group
from nmt.configuration.check import locate
from nmt.configuration.faults import ConfigError, shown
from nmt.configuration.settings import Settings
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Count, Range, Size
from nmt.model.layers.cells import CellName
from nmt.pipeline.fine_tuning import freeze
from nmt.tokenizer.columns import Columns

Seed = Annotated[int, Range(0, 2**32 - 1)]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """What every training has."""

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

    def idle(self) -> dict[str, str]:
        found = _idle_layers("encoder", self.encoder)
        trainer, tokenizer = self.trainer, self.tokenizer
        if trainer.get("average") == 1:
            found["trainer.average"] = "is the best model alone; give at least 2, or 0"
        epochs, updates = (
            trainer.get("validate_every", 1.0),
            trainer.get("validate_every_updates", 0),
        )
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

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts() + self._attention_conflicts() + self._beginning_conflicts()
        found += self._data_conflicts() + self._picture_conflicts()
        if not _joint(self.tokenizer):
            for key, instead in self.needs_joint.items():
                remedy = f"needs one vocabulary for both languages: set tokenizer.joint=true or {instead}"
                found.append(ConfigError(key, remedy, shown(self.model[key.partition(".")[2]])))
        return found

    @property
    def needs_joint(self) -> dict[str, str]:
        """What of the network needs one vocabulary for both languages, and what to set instead."""
        choices = (("tying", "all", "model.tying=output"), ("copy", True, "model.copy=false"))
        return {
            f"model.{key}": instead
            for key, value, instead in choices
            if self.model.get(key) == value
        }

    def _attention_conflicts(self) -> list[ConfigError]:
        """What needs attention where there is none."""
        if self.attention:
            return []
        why, found = (
            "needs attention, and there is none (attention=none): leave it out",
            list[ConfigError](),
        )
        penalties = (("objective", "doubly_stochastic"), ("objective", "guided_alignment"))
        for group, key in (("search", "coverage"), *penalties):
            value = getattr(self, group).get(key)
            found += [ConfigError(f"{group}.{key}", why, shown(value))] if value else []
        if self.translation.get("unknown") == "copy":
            found.append(ConfigError("translation.unknown", why, "copy"))
        return found

    @property
    def _columns(self) -> Columns:
        """What a source line will hold; each factor with a single value."""
        sources, pictures = self.data.get("source"), self._pictures
        count = (
            len(sources) if isinstance(sources, list) else int(not pictures or sources is not None)
        )
        return Columns(count, (("",),) * len(self.data.get("factors") or ()), picture=pictures)

    @property
    def _pictures(self) -> bool:
        """Whether the data names pictures."""
        return getattr(locate(self.data["_target_"], "nmt.data", "data"), "pictures", False)

    def _picture_conflicts(self) -> list[ConfigError]:
        """Encoders of pictures without pictures, and the other way round."""
        encoder: Any = locate(self.encoder["_target_"], "nmt.model.encoder", "encoder")
        words, reads = encoder.reads_words, encoder.reads_pictures
        found, columns = list[ConfigError](), self._columns
        if reads and not columns.picture:
            why = "reads pictures, and this data has none: choose data=captions or data=digits, or encoder=bidirectional"
            found.append(ConfigError("encoder", why))
        elif columns.picture and not reads:
            with_ = (
                "bidirectional+grid or bidirectional+convolution"
                if columns.sources
                else "grid or convolution"
            )
            found.append(
                ConfigError(
                    "encoder",
                    f"this data has pictures, and the encoder reads words alone: choose {with_}",
                )
            )
        elif columns.picture and words != bool(columns.sources):
            add = "set data.source, or choose" if words else "leave data.source out, or choose"
            other = (
                "grid or convolution"
                if words
                else "bidirectional+grid or bidirectional+convolution"
            )
            found.append(
                ConfigError(
                    "encoder",
                    f"reads {'words and' if words else 'only'} a picture: {add} encoder={other}",
                )
            )
        if columns.picture and not columns.sources and self.translation.get("unknown") == "copy":
            found.append(
                ConfigError(
                    "translation.unknown",
                    "copies source words, and a picture has none: drop or mark",
                    "copy",
                )
            )
        if not words and self.vectors and self.vectors[:1] != [None]:
            found.append(
                ConfigError(
                    "vectors", "there are no source words: give [null,TARGET]", shown(self.vectors)
                )
            )
        return found

    def _data_conflicts(self) -> list[ConfigError]:
        """What the data gives and nothing reads, or the other way round."""
        found, guided = list[ConfigError](), self.objective.get("guided_alignment")
        if guided and not self.data.get("alignment"):
            why = "needs the alignments of the training pairs: set data.alignment too"
            found.append(ConfigError("objective.guided_alignment", why, shown(guided)))
        if (
            self.objective["_target_"].endswith(".MinimumRisk")
            and (self.window or {}).get("estimator") == "reinforce"
        ):
            why = "has samples and a reward of its own: use window.estimator=straight_through, or another objective"
            found.append(ConfigError("window.estimator", why, "reinforce"))
        if (
            self.objective.get("weight") == 1
            and (self.window or {}).get("estimator") == "reinforce"
        ):
            why = "learns from the reference words, and objective.weight=1 leaves them out: use straight_through"
            found.append(ConfigError("window.estimator", why, "reinforce"))
        if self.objective["_target_"].endswith(".RDrop"):
            parts = [
                (self.model, True),
                *((p, p.get("num_layers", 1) > 1) for p in (self.encoder, self.decoder)),
            ]
            drops = ("word_dropout", "readout_dropout", "recurrent_dropout", "feature_dropout")
            if not any(
                (between and part.get("dropout")) or any(map(part.get, drops))
                for part, between in parts
            ):
                why = "compares two readings with different dropout, and nothing is dropped: set model.dropout"
                found.append(ConfigError("objective", why, "r_drop"))
            if self.model.get("copy"):
                why = "is not for objective=r_drop: copied words are in no vocabulary, whose distributions it compares"
                found.append(ConfigError("model.copy", why, "true"))
        if self.data.get("alignment") and not guided:
            why = "is read by objective.guided_alignment only: set that above 0"
            found.append(ConfigError("data.alignment", why, shown(self.data["alignment"])))
        chosen = {
            group: (self.values[group] or plain)["_target_"] for group, plain in build.PLAIN.items()
        }
        window, normalizer = (chosen[group].split(".")[-2] for group in ("window", "normalizer"))
        if guided and (normalizer != "softmax" or window in ("hard", "monotonic")):
            why = "takes the logarithm of every weight: use normalizer=softmax, and neither window=hard nor monotonic"
            found.append(ConfigError("objective.guided_alignment", why, shown(guided)))
        columns = self._columns
        if columns.sources + columns.picture > 1 and window in ("local_m", "local_p", "monotonic"):
            why = "looks at places of one source, and here are several, or a picture too: use window=global or hard"
            found.append(ConfigError("window", why, window))
        return found

    def _beginning_conflicts(self) -> list[ConfigError]:
        """What is wrong with how the weights begin, and which of them are trained."""
        found, tables = list[ConfigError](), {"source_embedding", "target_embedding", "output"}
        if self.init_vocabulary == "grow" and tables & {*(self.freeze or [])}:
            found.append(
                ConfigError(
                    "freeze",
                    "the vectors of the new pieces would never be trained (init_vocabulary=grow)",
                )
            )
        if self.freeze:
            with torch.device("meta"):
                network = build.network(self.values, 10, 10, self._columns)
            try:
                freeze(network, self.freeze)
            except UserError as error:
                found.append(ConfigError("", str(error)))
        if self.vectors is not None and (len(self.vectors) != 2 or self.vectors == [None, None]):
            found.append(
                ConfigError(
                    "vectors",
                    "give two files, [SOURCE,TARGET]; null for a language without",
                    shown(self.vectors),
                )
            )
        if self.vectors and self.init:
            found.append(
                ConfigError(
                    "vectors",
                    f"the words of init={self.init} have vectors already; leave one of them out",
                )
            )
        return found

    def idle(self) -> dict[str, str]:
        found = {**super().idle(), **_idle_layers("decoder", self.decoder)}
        if not self.model.get("dropout") and not self.model.get("readout_dropout"):
            found["model.variational_dropout"] = (
                "nothing is dropped: set model.dropout or model.readout_dropout"
            )
        if not self.data.get("factors"):
            found["model.factor_size"] = "the source has no factors: set data.factors"
        if not self.init:
            found["init_vocabulary"] = "there is no init=RUN_DIR"
        if not self._columns.sources:
            found["filters.max_ratio"] = "a picture has no length"
        if (self.window or {}).get("estimator") == "straight_through":
            for key in ("reward", "entropy", "expected", "decay"):
                found[f"window.{key}"] = "belongs to window.estimator=reinforce"
        if self.objective.get("teacher"):
            own = [
                "tokenizer",
                *(
                    f"tokenizer.{key}"
                    for key in self.tokenizer
                    if key not in ("_target_", "sampling")
                ),
            ]
            found |= dict.fromkeys([*own, "sizes.vocabulary"], "the vocabulary is the teacher's")
        found["search.n_best"] = (
            "training keeps the best translation only; give it to nmt.translate"
        )
        objective = self.objective
        if objective.get("decay") == "constant":
            for key in ("end", "pace", "updates"):
                found[f"objective.{key}"] = (
                    "the ratio stays objective.start with objective.decay=constant"
                )
        elif objective.get("updates"):
            found["objective.pace"] = f"the pace is objective.updates={objective['updates']}"
        return found


@dataclass(frozen=True, kw_only=True)
class BacktranslateSettings(TrainSettings):
    """conf/backtranslate.yaml."""

    synthetic: Group

    def conflicts(self) -> list[ConfigError]:
        found, synthetic = super().conflicts(), self.synthetic
        forward = synthetic["direction"] == "forward"
        if self.run_dir is None:
            found.append(
                ConfigError(
                    "run_dir",
                    "name a folder: everything is kept there, and the same command goes on in it",
                )
            )
        if forward and not synthetic["model"]:
            why = "is needed to translate forwards: a run directory, or several as [A,B]"
            found.append(ConfigError("synthetic.model", why))
        if not forward and not synthetic["text"]:
            found.append(
                ConfigError(
                    "synthetic.text",
                    "give a file with text of the target language, a sentence a line",
                )
            )
        if not forward and not synthetic["model"] and (self.init or self.objective.get("teacher")):
            key, value = (
                ("init", self.init)
                if self.init
                else ("objective.teacher", self.objective["teacher"])
            )
            why = "is for the model made, and cannot begin the one that translates backwards: give synthetic.model too"
            found.append(ConfigError(key, why, shown(value)))
        if self.resume:
            found.append(
                ConfigError(
                    "resume", "the same command goes on where it stopped; leave it out", self.resume
                )
            )
        columns = self._columns
        if not columns.plain or columns.sources > 1 or self.data.get("alignment"):
            found.append(
                ConfigError(
                    "data",
                    "back-translation makes plain texts: one source, no factors, alignments or pictures",
                )
            )
        if "config" in self.data:
            found.append(
                ConfigError(
                    "data",
                    "a mixture cannot be turned round: give the real pairs, by data=text, tsv …",
                )
            )
        return found

    def idle(self) -> dict[str, str]:
        found, synthetic = super().idle(), self.synthetic
        if synthetic["search"] != "beam":
            found["synthetic.width"] = (
                f"belongs to synthetic.search=beam, and it is {synthetic['search']}"
            )
        if synthetic["direction"] == "forward":
            found["synthetic.tag"] = "is for pairs made backwards (synthetic.direction=backward)"
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

    def conflicts(self) -> list[ConfigError]:
        found = super().conflicts()
        if not hasattr(locate(self.data["_target_"], "nmt.data", "data"), "labelled"):
            found.append(
                ConfigError(
                    "data",
                    "this data set has no labels; choose data=tsv, csv, jsonl, parquet or hub",
                )
            )
        if locate(self.encoder["_target_"], "nmt.model.encoder", "encoder").reads_pictures:  # type: ignore[attr-defined]
            found.append(
                ConfigError(
                    "encoder",
                    "reads pictures, and texts are classified: choose encoder=bidirectional",
                )
            )
        if not _joint(self.tokenizer):
            found.append(
                ConfigError("tokenizer.joint", "there is only one language; leave it out", "false")
            )
        if self.freeze and not self.vectors:
            found.append(
                ConfigError("freeze", "there is nothing to freeze without vectors=FILE", "true")
            )
        return found


def _joint(tokenizer: Group) -> bool:
    """Whether both languages have one vocabulary."""
    return bool(tokenizer.get("joint", tokenizer.get("target") is None))


def _idle_layers(group: str, node: Group) -> dict[str, str]:
    """What a stack of one layer does not use."""
    one = node.get("num_layers", 1) == 1
    found = {
        f"{group}.{key}": f"acts between layers: set {group}.num_layers"
        for key in ("dropout", "residual")
        if one
    }
    if one or not node.get("dropout"):
        found[f"{group}.variational_dropout"] = (
            f"is a kind of {group}.dropout: set that, and at least two layers"
        )
    if not node.get("recurrent_dropout"):
        found[f"{group}.recurrent_dropout_of"] = (
            f"nothing is dropped: set {group}.recurrent_dropout"
        )
    return {key: why for key, why in found.items() if node.get(key.partition(".")[2])}
