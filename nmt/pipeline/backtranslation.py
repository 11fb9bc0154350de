"""Back-translation (nmt.backtranslate) in five steps. Each step writes to the folder `run_dir`:

1. corpus/: the real pairs, in files such as train.SOURCE and train.TARGET
2. reverse/: the target-to-source model, a run of nmt.train; skipped if synthetic.model is set
3. translations: translations of the monolingual text with log-probabilities, one per line
4. synthetic.…: the selected synthetic pairs; mixture.yml: proportion of synthetic and real pairs
5. model/: the final model, a run of nmt.train on the mixture

With synthetic.direction=both, step 2 trains several models in each direction (forward-1/,
backward-1/, …), and step 3 writes the translations of each model to a separate file.

An interrupted step is resumed; a finished step is not repeated.
"""

import contextlib
import itertools
import json
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from nmt import components
from nmt.configuration.compose import compose
from nmt.configuration.previous_runs import changed, saved_run
from nmt.configuration.training_settings import BacktranslateSettings, TrainSettings
from nmt.configuration.translation_settings import TranslateSettings
from nmt.data import Splits, as_list
from nmt.data.lines import find_file, stream_lines
from nmt.data.overlap import warn_of_held_out_lines
from nmt.data.synthetic import Synthetic
from nmt.foundation.configurations import NOT_LEARNT, changed_keys, flat
from nmt.foundation.devices import find_device
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.part_limits import shown
from nmt.foundation.ranks import Ranks
from nmt.foundation.terminal import set_up_logging
from nmt.foundation.torchrun import AGAIN, together
from nmt.inference.output_formats import one_line
from nmt.metric import WITHOUT_SPACES
from nmt.pipeline.assembly.configured_data import loaded
from nmt.pipeline.assembly.run_parts import trackers_of
from nmt.pipeline.fingerprint import hash_of_file
from nmt.pipeline.model_commands import translate
from nmt.pipeline.run_training import TRIAL_UPDATES, final_score, train
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import write_atomically
from nmt.storage.metrics_file import read_metrics
from nmt.storage.upgrade import renamed
from nmt.tokenizer.words import words
from nmt.training.run_directory import locked_folder

log = logging.getLogger(__name__)
RECORD = "backtranslation.json"
"""Name of the file that records the real pairs and the settings. A repeated command compares the
file with its own settings."""
OTHER_SIDE = {"source_embedding": "target_embedding", "target_embedding": "source_embedding"}
"""Maps each network component of the source side to its counterpart of the target side, and vice
versa."""


def backtranslate(settings: BacktranslateSettings) -> float:
    """Runs all unfinished steps of a back-translation, and returns the test score of the final
    model.

    Raises UserError if the text, the folder or a model cannot be used.
    """
    synthetic: Synthetic = components.make(settings.values, "synthetic")
    trackers_of(settings.values)  # raises UserError before the text is read
    if synthetic.text is not None:
        find_file(synthetic.text)
    if synthetic.model is not None:
        _check_direction(settings, synthetic)
    folder = Path(str(settings.run_dir))
    with together(find_device(settings.device).type == "cuda", AGAIN) as ranks:
        ranks.agree("configuration", flat(settings.values), "start all ranks with the same command")
        with locked_folder(folder) if ranks.first else contextlib.nullcontext():
            try:
                corpus = _corpus(settings, synthetic, folder) if ranks.first else None
                corpus = ranks.of_first(corpus)
                assert corpus is not None
                return Backtranslation(settings, synthetic, folder, corpus, ranks).run()
            except (KeyboardInterrupt, Stopped):
                log.warning(
                    "back-translation stopped; the same nmt.backtranslate command continues all "
                    "steps, including an interrupted training run"
                )
                raise


def _check_direction(settings: BacktranslateSettings, synthetic: Synthetic) -> None:
    """Raises UserError if a model in synthetic.model cannot be read or has the wrong direction."""
    languages = settings.data.get("source"), settings.data.get("target")
    needed = languages if synthetic.direction == "forward" else languages[::-1]
    for path in as_list(synthetic.model):
        saved = ckpt.read_model(path, "synthetic.model", "train")
        learnt = tuple(saved.meta.get("languages") or ())
        if len(set(languages)) == 2 and learnt == needed[::-1]:
            raise UserError(
                f"synthetic.model={path}: translates from {learnt[0]} to {learnt[1]}, but "
                f"synthetic.direction={synthetic.direction} needs {needed[0]} to {needed[1]}"
            )


# Step 1: real pairs


@dataclass(frozen=True)
class RealPairs:
    """Record of the real pairs and the command's inputs, against which a repeated command is
    checked.

    languages: source and target language
    pairs: number of training pairs
    test: whether there is a test set
    beside: paths of the further validation sets in corpus/
    settings: settings of the command, by dotted key
    text: digest of the monolingual text file; None without a file
    files: names of the files in corpus/
    """

    languages: tuple[str, str]
    pairs: int
    test: bool
    beside: list[str]
    settings: dict[str, Any]
    text: str | None
    files: list[str] = field(default_factory=list)


def _corpus(settings: BacktranslateSettings, synthetic: Synthetic, folder: Path) -> RealPairs:
    """Writes the real pairs to files unless the files exist, and returns their record.

    Raises UserError if the folder has other content or was created with other settings.
    """
    record = folder / RECORD
    text_hash = hash_of_file(synthetic.text) if synthetic.text else None
    values = flat({key: value for key, value in settings.values.items() if key not in NOT_LEARNT})
    if record.exists():
        corpus = _read_record(record)
        _check_unchanged(corpus, values, text_hash, synthetic, folder)
        if all((folder / "corpus" / name).exists() for name in corpus.files):
            return corpus
    elif others := {path.name for path in folder.iterdir()} - {".lock", "corpus"}:
        raise UserError(
            f"run_dir={folder}: contains {min(others)}, which nmt.backtranslate did not create; "
            "choose another folder"
        )
    if synthetic.text:
        _check_text(settings, synthetic)
    splits = loaded(settings.values, components.make(settings.values, "filters"))
    if synthetic.text:
        side = 0 if synthetic.direction == "forward" else 1
        lines = stream_lines(find_file(synthetic.text), "strict")
        warn_of_held_out_lines(splits, lines, side, f"synthetic.text={synthetic.text}")
    batch = settings.batching.get("sentences") or 1
    if synthetic.real and len(splits.train) < batch:
        raise UserError(
            f"{splits.train.name}: {len(splits.train):,} sentence pairs, must be at least "
            f"{batch:,} (one batch); lower batching.sentences, or set synthetic.real=0"
        )
    corpus = RealPairs(
        languages=splits.languages,
        pairs=len(splits.train),
        test=splits.test is not None,
        beside=[str(folder / "corpus" / name) for name in splits.more_validation],
        settings=values,
        text=text_hash,
        files=_write_splits(splits, folder / "corpus"),
    )
    write_atomically(record, json.dumps(asdict(corpus), indent=2, ensure_ascii=False).encode())
    log.info(
        "back-translation, step 1: wrote %s real pairs to %s",
        f"{corpus.pairs:,}",
        folder / "corpus",
    )
    return corpus


def _read_record(record: Path) -> RealPairs:
    """Reads the record of the real pairs. Raises UserError if the record is damaged."""
    try:
        fields = json.loads(record.read_text(encoding="utf-8"))
        fields["languages"] = tuple(fields["languages"])
        fields["settings"] = {
            key: renamed(value) if key.endswith("_target_") else value
            for key, value in fields["settings"].items()
        }
        return RealPairs(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{record}: damaged; remove the file, or choose another run_dir") from error


def _check_unchanged(
    corpus: RealPairs,
    values: Mapping[str, Any],
    text_hash: str | None,
    synthetic: Synthetic,
    folder: Path,
) -> None:
    """Raises UserError if the settings or the monolingual text have changed since the run folder of
    the back-translation was created."""
    if corpus.text != text_hash:
        raise UserError(
            f"synthetic.text={synthetic.text}: the file has changed since the back-translation "
            f"in {folder} began; choose another run_dir"
        )
    for key in changed_keys(corpus.settings, values):
        reuse = f", and reuse the reverse model by synthetic.model={folder / 'reverse'}"
        is_trained = (folder / "reverse" / "results.json").exists()
        raise UserError(
            f"run_dir={folder}: created with {key}={shown(corpus.settings.get(key))}, not "
            f"{shown(values.get(key))}; choose another folder{reuse if is_trained else ''}"
        )


def _check_text(settings: BacktranslateSettings, synthetic: Synthetic) -> None:
    """Raises UserError if the monolingual text has too few lines for a batch."""
    lines = stream_lines(find_file(str(synthetic.text)), "strict")
    count = sum(bool(line.strip()) for line in lines)
    if not count:
        raise UserError(f"synthetic.text={synthetic.text}: contains no words")
    _check_number(int(synthetic.keep * count), f"synthetic.text={synthetic.text}", settings)


def _check_number(pairs: int, key: str, settings: BacktranslateSettings) -> None:
    """Raises UserError if there are fewer synthetic pairs than one batch needs."""
    batch = settings.batching.get("sentences") or 1
    if pairs < batch:
        raise UserError(
            f"{key}: gives {pairs:,} synthetic pairs, must be at least {batch:,} (one batch); "
            "lower batching.sentences, give more text, or raise synthetic.keep, in each case with "
            "a new run_dir"
        )


def _write_splits(splits: Splits, folder: Path) -> list[str]:
    """Writes the training, validation and test sets, and returns the names of the files."""
    shutil.rmtree(folder, ignore_errors=True)  # removes files of an interrupted attempt
    folder.mkdir()
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    for name, pairs in {**parts, **splits.more_validation}.items():
        sides = () if pairs is None else (pairs.source, pairs.target)
        for language, lines in zip(splits.languages, sides, strict=False):
            with Path(folder, f"{name}.{language}").open("w", encoding="utf-8") as file:
                file.writelines(f"{one_line(line)}\n" for line in lines)
    return sorted(file.name for file in folder.iterdir())


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
class Backtranslation:
    """Steps 2 to 5 of back-translation: models that translate, translation, selection, final model.

    settings: validated settings of the command
    synthetic: settings of the synthetic pairs
    folder: folder of all results
    corpus: real pairs written by step 1
    ranks: processes (ranks) that share the work
    """

    settings: BacktranslateSettings
    synthetic: Synthetic
    folder: Path
    corpus: RealPairs
    ranks: Ranks

    def run(self) -> float:
        """Runs all unfinished steps of a back-translation, and returns the test score of the final
        model."""
        if not self._exists(self.folder / "model" / "results.json"):
            for translator in self.translators:
                if translator.seed is not None:
                    self._train_translator(translator)
            for translator in self.translators:
                self._translate(translator)
            if self.ranks.first:
                self.select_data()
        return self._train_final()

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

    def _exists(self, file: Path) -> bool:
        """Waits until rank 0 reaches this call, and returns whether the file exists.

        file: file that only rank 0 writes, such as the results or the checkpoint of a run
        """
        return self.ranks.of_first(file.exists())

    # Step 2: models that translate

    def _train_translator(self, translator: TextTranslation) -> None:
        """Trains a model on the real pairs; a target-to-source model is trained with source and
        target settings exchanged."""
        folder = Path(str(translator.folders))
        source, target = self.corpus.languages
        values = self._training_values
        values["seed"] = translator.seed
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
            self._train(folder, values, "step 2 (source-to-target model)")
            return
        values["data"] |= {"source": target, "target": source}
        if self.settings.vectors:
            values["vectors"] = self.settings.vectors[::-1]
        if self.settings.freeze:
            values["freeze"] = [OTHER_SIDE.get(name, name) for name in self.settings.freeze]
        tokenizer = self.settings.tokenizer
        metric = self.settings.metric
        if tokenizer.get("target"):
            exchanged = {"model": tokenizer["target"], "target": tokenizer["model"]}
            values["tokenizer"] = {**tokenizer, **exchanged}
        # A tokenisation specific to the target language does not apply to the source language.
        if metric["tokenize"] in WITHOUT_SPACES.values():
            values["metric"] = {**metric, "tokenize": "auto"}
        self._train(folder, values, "step 2 (target-to-source model)")

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

    def _train(self, folder: Path, values: Mapping[str, Any], step: str) -> None:
        """Trains or resumes a run, unless the run is finished.

        folder: run folder
        values: settings of a new run
        step: number and name of the step, for a log message
        """
        if self._exists(folder / "results.json"):
            return
        log.info("back-translation, %s: training in the run folder %s", step, folder)
        if self._exists(folder / ckpt.LAST):
            saved = changed(saved_run(str(folder), "train"), "train", ["trainer.stop_after=0"])
            keys = ("device", "threads", "log", "tracker", "keep_validations", "final_test")
            # Keys without effect on the weights may change.
            free = {key: self.settings.values[key] for key in keys}
            train(TrainSettings.of({**saved, **free, "resume": str(folder)}))
        else:
            train(TrainSettings.of({**values, "run_dir": str(folder), "resume": None}))
        set_up_logging()

    # Step 3: translation

    def _translate(self, translator: TextTranslation) -> None:
        """Translates a text into a file, continuing after the last line of an earlier attempt."""
        output = str(translator.output)
        synthetic = self.synthetic
        log.info("back-translation, step 3: writing translations to %s", output)
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
            "output": output,
            "format": "moses",
            "resume": True,
            "device": self.settings.device,
        }
        translate(TranslateSettings.of(values))

    # Step 4: selection

    def select_data(self) -> None:
        """Writes the selected synthetic pairs, and the mixture file of synthetic and real pairs.

        With data diversification (synthetic.direction=both), pairs that are equal to a real pair or
        to an earlier pair are dropped.
        """
        mixture = self.folder / "mixture.yml"
        files = [self.folder / f"synthetic.{name}" for name in self.corpus.languages]
        if all(file.exists() for file in (mixture, *files)):
            return
        mixture.unlink(missing_ok=True)  # marks the pairs as complete, and is written last
        pairs: Iterator[tuple[str, str]] = itertools.chain(*map(self._selected, self.translators))
        if self.synthetic.direction == "both":
            pairs = _new(pairs, [self.folder / "corpus" / f"train.{f.suffix[1:]}" for f in files])
        count = 0
        with (
            files[0].open("w", encoding="utf-8") as sources,
            files[1].open("w", encoding="utf-8") as targets,
        ):
            for source, target in pairs:
                sources.write(f"{source}\n")
                targets.write(f"{target}\n")
                count += 1
        _check_number(count, f"synthetic.keep={shown(self.synthetic.keep)}", self.settings)
        log.info(
            "back-translation, step 4: selected %s synthetic pairs in %s",
            f"{count:,}",
            self.folder / "synthetic.*",
        )
        # Number of real pairs per synthetic pair.
        real = self.synthetic.real * self.corpus.pairs / count
        described = {
            "datasets": {"synthetic": "synthetic", **({"real": "corpus/train"} if real else {})},
            "stages": ["all"],
            "all": [
                "synthetic 1.0",
                *([f"real {real:.9f}"] if real else []),
                "until synthetic inf",
            ],
        }
        write_atomically(mixture, yaml.safe_dump(described).encode())

    def _selected(self, translator: TextTranslation) -> Iterator[tuple[str, str]]:
        """Yields the selected pairs of a source and a target sentence.

        Of the translations, the fraction `synthetic.keep` with the highest log-probability per
        token is selected.
        """
        scores = np.array([score for _, score in read_translations(translator.output)])
        usable = scores[scores > -np.inf]  # log-probabilities of the non-empty translations
        if not usable.size:
            raise UserError(
                f"{translator.text}: all translations of this text are empty; check the "
                f"validation scores in {translator.folders}"
            )
        threshold = float(np.quantile(usable, 1 - self.synthetic.keep))
        lines = stream_lines(find_file(translator.text), "strict")
        translations = read_translations(translator.output)
        for line, (translation, score) in zip(lines, translations, strict=True):
            if score < threshold or not line.strip():
                continue
            text = one_line(line)
            # In back-translation, the text is in the target language.
            is_forward = translator.direction == "forward"
            yield (text, translation) if is_forward else (translation, text)

    # Step 5: final model

    def _train_final(self) -> float:
        """Trains the final model on real and synthetic pairs, and returns its test score."""
        folder = self.folder / "model"
        tag = self.synthetic.tag if self.synthetic.direction == "backward" else None
        data = {
            "_target_": "nmt.data.sources.mix.Mix",
            "config": str(self.folder / "mixture.yml"),
            **self._evaluation_data,
            "source": self.corpus.languages[0],
            "target": self.corpus.languages[1],
            "tags": {"synthetic": tag} if tag else None,
        }
        values = {**self._training_values, "data": data}
        if self.synthetic.direction == "both" and not self._exists(folder / "results.json"):
            trainer = self._usual_updates() if self.ranks.first else {}
            values["trainer"] = self.ranks.of_first(trainer)
            if values["final_test"] == "auto":  # as for a model without synthetic pairs
                values["final_test"] = not 0 < self.settings.trainer["max_updates"] < TRIAL_UPDATES
        self._train(folder, values, "step 5 (final model)")
        self.ranks.wait()  # rank 0 has written the results when it comes here
        results = json.loads((folder / "results.json").read_text())
        name = self.settings.metric["name"]
        score = final_score(results, name)
        log.info(
            "back-translation finished: %s %s %.2f; results in %s",
            results["part"],
            name,
            score,
            self.folder,
        )
        return score

    def _usual_updates(self) -> dict[str, Any]:
        """Returns trainer settings for the final model: as many updates and validations as for a
        model that is trained on the real pairs only."""
        trainer = dict(self.settings.trainer)
        first = Path(str(self.translators[0].folders))
        # The planned number, because training may have ended earlier by trainer.patience; short
        # runs have no record of it.
        planned = [record["total"] for record in read_metrics(first) if "total" in record]
        results = json.loads((first / "results.json").read_text(encoding="utf-8"))
        trainer["max_updates"] = planned[-1] if planned else results["updates"]
        # An epoch of the mixture has all synthetic pairs and the real pairs.
        path = self.folder / f"synthetic.{self.corpus.languages[0]}"
        with path.open(encoding="utf-8") as lines:
            synthetic = sum(1 for _ in lines)
        real = self.synthetic.real * self.corpus.pairs
        trainer["validate_every"] *= self.corpus.pairs / (synthetic + real)
        return trainer


def _new(pairs: Iterable[tuple[str, str]], real: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yields the synthetic pairs that equal neither a real pair nor an earlier synthetic pair.

    pairs: synthetic pairs (source, target)
    real: files of the source and the target sentences of the real pairs
    """
    sides = [stream_lines(file, "strict") for file in real]
    seen = {
        hash((one_line(source), one_line(target))) for source, target in zip(*sides, strict=True)
    }
    for pair in pairs:
        if hash(pair) not in seen:
            seen.add(hash(pair))
            yield pair


def read_translations(file: Path) -> Iterator[tuple[str, float]]:
    """Yields pairs (translation, log-probability per token in nats) from a file of translations.

    The log-probability of an empty translation is -inf.

    file: n-best list in Moses format that has one hypothesis per sentence
    """
    for line in stream_lines(file, "strict"):
        fields, log_prob = line.rsplit(" ||| ", 1)[0].rsplit(" ||| logprob= ", 1)
        text = fields.partition(" ||| ")[2]
        count = len(words(text))
        # The end symbol </s> also counts as a token.
        yield text, float(log_prob) / (count + 1) if count else -np.inf
