"""Settings of the trainings and translations of back-translation, computed from the settings of
nmt.backtranslate."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.configuration.compose import compose
from nmt.configuration.training_settings import BacktranslateSettings
from nmt.configuration.translation_settings import TranslateSettings
from nmt.data import as_list
from nmt.data.lines import stream_lines
from nmt.data.synthetic import Synthetic
from nmt.foundation.torchrun import of_torchrun
from nmt.metric import WITHOUT_SPACES
from nmt.pipeline.backtranslation.real_pairs import RealPairs
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import read_json_object
from nmt.storage.metrics_file import read_metrics

OTHER_SIDE = {"source_embedding": "target_embedding", "target_embedding": "source_embedding"}
"""Maps each network component of the source side to its counterpart of the target side, and vice
versa."""


@functools.cache
def languages_of(path: str) -> tuple[str, ...]:
    """Returns the names of the source and target languages of the trained model `path`."""
    return ckpt.read_model(path, "synthetic.model", "train").languages


@dataclass(frozen=True)
class TextTranslation:
    """Model that translates a text into synthetic pairs.

    direction: forward (source to target language) or backward
    folders: run folder of the model, or the run folders of an ensemble
    text: path of the text
    output: path of the translations
    seed: random seed with which the model is trained; None for a model that exists already
    """

    direction: str
    folders: str | list[str]
    text: str
    output: Path
    seed: int | None


@dataclass(frozen=True)
class StepSettings:
    """Settings of steps 2 to 5 of back-translation.

    settings: validated settings of the command
    synthetic: settings of the synthetic pairs
    folder: folder of all results
    corpus: record of the real (not synthetic) sentence pairs that step 1 has written
    """

    settings: BacktranslateSettings
    synthetic: Synthetic
    folder: Path
    corpus: RealPairs

    @property
    def translators(self) -> list[TextTranslation]:
        """Models that create the synthetic pairs, each with the text that it translates."""
        synthetic = self.synthetic
        seed = self.settings.seed
        real = [str(self.folder / "corpus" / f"train.{name}") for name in self.corpus.languages]
        if synthetic.direction != "both":
            return [
                TextTranslation(
                    direction=synthetic.direction,
                    folders=synthetic.model or str(self.folder / "reverse"),
                    text=synthetic.text or real[0],
                    output=self.folder / "translations",
                    seed=None if synthetic.model else seed,
                )
            ]
        if synthetic.model:
            return [
                self._given(number, path, real)
                for number, path in enumerate(as_list(synthetic.model), start=1)
            ]
        return [
            TextTranslation(
                direction=direction,
                folders=str(self.folder / f"{direction}-{number}"),
                text=text,
                output=self.folder / f"translations-{direction}-{number}",
                seed=seed + number,
            )
            for number in range(1, synthetic.models + 1)
            for direction, text in zip(("forward", "backward"), real, strict=True)
        ]

    def _given(self, number: int, path: str, real: Sequence[str]) -> TextTranslation:
        """Returns the translation of one side of the real pairs by a trained model.

        number: number of the model in synthetic.model, from 1
        path: run folder of the model
        real: files of the source and the target sentences of the real pairs
        """
        is_forward = languages_of(path)[0] == self.corpus.languages[0]
        return TextTranslation(
            direction="forward" if is_forward else "backward",
            folders=path,
            text=real[0] if is_forward else real[1],
            output=self.folder / f"translations-{number}",
            seed=None,
        )

    def of_translator(self, translator: TextTranslation) -> dict[str, Any]:
        """Returns the settings of nmt.train for a model that is trained on the real (not synthetic)
        pairs. For a target-to-source model, source and target settings are exchanged."""
        source, target = self.corpus.languages
        values = {**self._training_values, "seed": translator.seed}
        values["data"] = {
            "_target_": "nmt.data.sources.text.TextFiles",
            "train": str(self.folder / "corpus" / "train"),
            **self._evaluation_data,
            "source": source,
            "target": target,
            # The validation and test sets are files in corpus/.
            "split": 0.0,
            "factors": None,
            "alignment": None,
        }
        if translator.direction == "forward":
            return values
        values["data"] |= {"source": target, "target": source}
        if self.settings.vectors:
            values["vectors"] = self.settings.vectors[::-1]
        if self.settings.freeze:
            values["freeze"] = [OTHER_SIDE.get(name, name) for name in self.settings.freeze]
        # A lexicon file has translations from source to target only.
        if values["model"].get("lexicon"):
            values["model"] = {**values["model"], "lexicon": "auto"}
        tokenizer = self.settings.tokenizer
        metric = self.settings.metric
        if tokenizer.get("target"):
            exchanged = {"model": tokenizer["target"], "target": tokenizer["model"]}
            values["tokenizer"] = {**tokenizer, **exchanged}
        # A tokenisation specific to the target language does not apply to the source language.
        if metric["tokenize"] in WITHOUT_SPACES.values():
            values["metric"] = {**metric, "tokenize": "auto"}
        return values

    def of_translation(self, translator: TextTranslation) -> TranslateSettings:
        """Returns the settings of nmt.translate for the translation of a text."""
        synthetic = self.synthetic
        typed = [f"search={synthetic.search}"]
        if synthetic.search == "beam":
            typed.append(f"search.width={synthetic.width}")
        if synthetic.search == "sample":
            seed = translator.seed or self.settings.seed
            typed += [f"search.seed={seed}", f"search.top_k={synthetic.top_k}"]
        values = {
            **compose("translate", typed),
            "model": translator.folders,
            "input": translator.text,
            "output": str(translator.output),
            "format": "moses",
            "resume": True,
            "device": self.settings.device,
        }
        return TranslateSettings.of(values)

    def of_final_model(self) -> dict[str, Any]:
        """Returns the settings of nmt.train for the model that is trained on real and synthetic
        pairs."""
        tag = self.synthetic.tag if self.synthetic.direction == "backward" else None
        data = {
            "_target_": "nmt.data.sources.mix.Mix",
            "config": str(self.folder / "mixture.yml"),
            **self._evaluation_data,
            "source": self.corpus.languages[0],
            "target": self.corpus.languages[1],
            "tags": {"synthetic": tag} if tag else None,
        }
        return {**self._training_values, "data": data}

    def usual_trainer(self) -> dict[str, Any]:
        """Returns trainer settings for the final model: as many updates and validations as for a
        model that is trained without synthetic pairs."""
        trainer = dict(self.settings.trainer)
        # An epoch of the mixture has as many pairs as its corpora, whatever their weights are.
        file = self.folder / f"synthetic.{self.corpus.languages[0]}"
        synthetic = sum(1 for _ in stream_lines(file))
        real = self.corpus.pairs if self.synthetic.real else 0
        share = self.corpus.pairs / (synthetic + real)
        trainer["validate_every"] *= share
        epochs = trainer["max_epochs"]
        if self.synthetic.model:
            trainer["max_epochs"] = math.ceil(epochs * share)
            if not self.settings.batching["tokens"]:
                pairs = self.corpus.pairs * (1 + self.settings.copied_pairs)
                batches = math.ceil(pairs / self.settings.batching["sentences"])
                updates = epochs * math.ceil(batches / trainer["accumulate"] / of_torchrun().count)
                trainer["max_updates"] = min(updates, trainer["max_updates"] or updates)
            return trainer
        first = Path(str(self.translators[0].folders))
        # The planned number, because training may have ended earlier by trainer.patience; short
        # runs have no record of it.
        planned = [record["total"] for record in read_metrics(first) if "total" in record]
        results = read_json_object(first / "results.json")
        trainer["max_updates"] = planned[-1] if planned else results["updates"]
        return trainer

    @property
    def _training_values(self) -> dict[str, Any]:
        """Settings for nmt.train: all settings of nmt.backtranslate except the group
        `synthetic`.
        """
        return {key: value for key, value in self.settings.values.items() if key != "synthetic"}

    @property
    def _evaluation_data(self) -> dict[str, Any]:
        """Data settings for the validation and test sets of all models that back-translation
        trains."""
        corpus = self.folder / "corpus"
        return {
            "validation": [str(corpus / "validation"), *self.corpus.beside],
            "test": str(corpus / "test") if self.corpus.test else None,
        }
