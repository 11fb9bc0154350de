"""Back-translation (nmt.backtranslate) in steps, whose results are in one folder:

    corpus/        real pairs: train.SOURCE, train.TARGET, validation.…, test.…
    reverse/       model that translates, unless another is given: a run of nmt.train
    translations   translations of the text with log-probabilities, appended line by line
    synthetic.…    selected pairs
    mixture.yml    proportion of synthetic and real pairs
    model/         a run of nmt.train on the mixture

An interrupted step is continued; a finished step is not repeated.
"""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from nmt.configuration import build
from nmt.configuration.compose import compose
from nmt.configuration.faults import shown
from nmt.configuration.model_settings import TranslateSettings, models
from nmt.configuration.saved_runs import changed, saved_run
from nmt.configuration.training_settings import BacktranslateSettings, TrainSettings
from nmt.data import Splits
from nmt.data.lines import find_file, stream_lines
from nmt.data.synthetic import Synthetic
from nmt.foundation.configurations import NOT_LEARNT, flat
from nmt.foundation.errors import Stopped, UserError
from nmt.foundation.terminal import set_up_logging
from nmt.inference.output_formats import one_line
from nmt.metric import WITHOUT_SPACES
from nmt.pipeline.assembly import loaded, trackers_of
from nmt.pipeline.fingerprint import hash_of_files
from nmt.pipeline.model_commands import translate
from nmt.pipeline.run_training import train
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import write_atomically
from nmt.storage.lock import Lock
from nmt.storage.upgrade import renamed
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)
RECORD = "backtranslation.json"
"""File that describes the real pairs and the settings of the command."""
OTHER_SIDE = {"source_embedding": "target_embedding", "target_embedding": "source_embedding"}
"""Parts of a network that belong to one language, and their counterparts."""


def backtranslate(settings: BacktranslateSettings) -> float:
    """Runs all unfinished steps; returns the test score of the final model.

    Raises UserError if the text, the folder or a model cannot be used.
    """
    synthetic: Synthetic = build.make(settings.values, "synthetic")
    trackers_of(settings.values)  # raises UserError before the text is read
    if synthetic.text is not None:
        find_file(synthetic.text)
    if synthetic.model is not None:
        _check_direction(settings, synthetic)
    folder = Path(str(settings.run_dir))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"run_dir={folder}: cannot be made ({error.strerror})") from error
    with Lock(folder / ".lock", f"run_dir={folder}"):
        try:
            corpus = _corpus(settings, synthetic, folder)
            return Backtranslation(settings, synthetic, folder, corpus).run()
        except (KeyboardInterrupt, Stopped):
            log.warning(
                "stopped: the same command of nmt.backtranslate continues this step and all others"
            )
            raise


def _check_direction(settings: BacktranslateSettings, synthetic: Synthetic) -> None:
    """Raises UserError if a model of synthetic.model cannot be read, or has the wrong direction."""
    languages = settings.data.get("source"), settings.data.get("target")
    needed = languages if synthetic.direction == "forward" else languages[::-1]
    for path in models(synthetic.model):
        saved = ckpt.read_model(path, "synthetic.model", "train")
        learnt = tuple(saved.meta.get("languages") or ())
        if len(set(languages)) == 2 and learnt == needed[::-1]:
            raise UserError(
                f"synthetic.model={path}: translates from {learnt[0]} to {learnt[1]}, and "
                f"{needed[0]} to {needed[1]} is needed (synthetic.direction={synthetic.direction})"
            )


# Step 1: the real pairs


@dataclass(frozen=True)
class RealPairs:
    """Record of the real pairs, and of the inputs of pairs and translations.

    languages: source and target
    pairs: number of training pairs
    test: whether there is a test part
    beside: paths of further validation parts
    settings: settings of the command by their whole keys
    text: hash of the text to translate, if it is a file of its own
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
    """Writes the real pairs as files, unless they are there.

    Raises UserError if the folder was begun with other settings, or has other content.
    """
    record = folder / RECORD
    text_hash = hash_of_files(str(find_file(synthetic.text))) if synthetic.text else None
    values = flat({key: value for key, value in settings.values.items() if key not in NOT_LEARNT})
    if record.exists():
        corpus = _read_record(record)
        _check_unchanged(corpus, values, text_hash, synthetic, folder)
        if all((folder / "corpus" / name).exists() for name in corpus.files):
            return corpus
    elif others := {path.name for path in folder.iterdir()} - {".lock", "corpus"}:
        raise UserError(
            f"run_dir={folder}: holds {min(others)}, which nmt.backtranslate has not made; choose "
            "another"
        )
    if synthetic.text:
        _check_text(settings, synthetic)
    splits = loaded(settings.values, build.make(settings.values, "filters"))
    batch = settings.batching.get("sentences") or 1
    if synthetic.real and len(splits.train) < batch:
        raise UserError(
            f"{splits.train.name}: {len(splits.train):,} pairs, fewer than a batch of {batch:,}: "
            "lower batching.sentences, or set synthetic.real=0"
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
    log.info("step 1: wrote %s real pairs to %s", f"{corpus.pairs:,}", folder / "corpus")
    return corpus


def _read_record(record: Path) -> RealPairs:
    """The real pairs of a record. Raises UserError if it is damaged."""
    try:
        fields = json.loads(record.read_text(encoding="utf-8"))
        fields["languages"] = tuple(fields["languages"])
        fields["settings"] = {
            key: renamed(value) if key.endswith("_target_") else value
            for key, value in fields["settings"].items()
        }
        return RealPairs(**fields)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{record}: is damaged; remove it, or choose another run_dir") from error


def _check_unchanged(
    corpus: RealPairs,
    values: Mapping[str, Any],
    text_hash: str | None,
    synthetic: Synthetic,
    folder: Path,
) -> None:
    """Raises UserError if the folder was begun with other settings or another text."""
    if corpus.text != text_hash:
        raise UserError(
            f"synthetic.text={synthetic.text}: has changed since {folder} was begun; choose "
            "another run_dir"
        )
    for key in sorted({*values, *corpus.settings}):
        before = corpus.settings.get(key)
        now = values.get(key)
        if before == now:
            continue
        reuse = f" (with synthetic.model={folder / 'reverse'} it needs no other model to translate)"
        is_trained = (folder / "reverse" / "results.json").exists()
        raise UserError(
            f"run_dir={folder}: was begun with {key}={shown(before)}, not {shown(now)}; choose "
            f"another folder{reuse if is_trained else ''}"
        )


def _check_text(settings: BacktranslateSettings, synthetic: Synthetic) -> None:
    """Raises UserError if a text has too few lines for a batch of pairs."""
    lines = stream_lines(find_file(str(synthetic.text)), "strict")
    count = sum(bool(line.strip()) for line in lines)
    if not count:
        raise UserError(f"synthetic.text={synthetic.text}: there are no words in it")
    _check_number(int(synthetic.keep * count), f"synthetic.text={synthetic.text}", settings)


def _check_number(pairs: int, key: str, settings: BacktranslateSettings) -> None:
    """Raises UserError if the number of pairs is less than a batch."""
    batch = settings.batching.get("sentences") or 1
    if pairs < batch:
        raise UserError(
            f"{key}: makes {pairs:,} pairs, fewer than a batch of {batch:,}: lower "
            "batching.sentences, or give more text or a larger synthetic.keep (in another "
            "run_dir, if something is in this one)"
        )


def _write_splits(splits: Splits, folder: Path) -> list[str]:
    """Writes the parts of a corpus; returns the names of the files."""
    shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was interrupted
    folder.mkdir()
    parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    for name, pairs in {**parts, **splits.more_validation}.items():
        sides = () if pairs is None else (pairs.source, pairs.target)
        for language, lines in zip(splits.languages, sides, strict=False):
            with Path(folder, f"{name}.{language}").open("w", encoding="utf-8") as file:
                file.writelines(f"{one_line(line)}\n" for line in lines)
    return sorted(file.name for file in folder.iterdir())


@dataclass(frozen=True)
class Backtranslation:
    """Steps 2 to 5.

    settings: settings of the command
    synthetic: settings of the synthetic pairs
    folder: folder of all results
    corpus: real pairs, the result of step 1
    """

    settings: BacktranslateSettings
    synthetic: Synthetic
    folder: Path
    corpus: RealPairs

    def run(self) -> float:
        """Runs all unfinished steps; returns the test score of the final model."""
        if not (self.folder / "model" / "results.json").exists():
            if self.synthetic.model is None:
                self._train_reverse()
            self._translate(self.synthetic.model or str(self.folder / "reverse"))
            self.select_data()
        return self._train_final()

    # Step 2

    def _train_reverse(self) -> None:
        """Trains a model from target to source, with the settings of both languages exchanged."""
        source, target = self.corpus.languages
        values = self._training_values
        values["data"] = {
            "_target_": "nmt.data.sources.text.TextFiles",
            "train": str(self.folder / "corpus" / "train"),
            **self._evaluation_data,
            "source": target,
            "target": source,
            # The parts are written already.
            "split": 0.0,
            "factors": None,
            "alignment": None,
        }
        if self.settings.vectors:
            values["vectors"] = self.settings.vectors[::-1]
        if self.settings.freeze:
            values["freeze"] = [OTHER_SIDE.get(name, name) for name in self.settings.freeze]
        tokenizer = self.settings.tokenizer
        metric = self.settings.metric
        if tokenizer.get("target"):
            exchanged = {"model": tokenizer["target"], "target": tokenizer["model"]}
            values["tokenizer"] = {**tokenizer, **exchanged}
        # A word segmentation of the target language does not suit the source language.
        if metric["tokenize"] in WITHOUT_SPACES.values():
            values["metric"] = {**metric, "tokenize": "auto"}
        self._train(self.folder / "reverse", values, "step 2 (target-to-source model)")

    @property
    def _training_values(self) -> dict[str, Any]:
        """The settings without those that nmt.train does not have."""
        return {key: value for key, value in self.settings.values.items() if key != "synthetic"}

    @property
    def _evaluation_data(self) -> dict[str, Any]:
        """Validation and test parts of both trainings."""
        corpus = self.folder / "corpus"
        return {
            "validation": [str(corpus / "validation"), *self.corpus.beside],
            "test": str(corpus / "test") if self.corpus.test else None,
        }

    def _train(self, folder: Path, values: Mapping[str, Any], step: str) -> None:
        """Trains or resumes a run, unless it is finished.

        folder: run directory
        values: settings of a new run
        step: number and name of the step, for a log message
        """
        if (folder / "results.json").exists():
            return
        log.info("%s: training in %s", step, folder)
        if (folder / ckpt.LAST).exists():
            saved = changed(saved_run(str(folder), "train"), "train", ["trainer.stop_after=0"])
            keys = ("device", "threads", "tracker", "keep_validations", "final_test")
            # these do not change what is learnt
            free = {key: self.settings.values[key] for key in keys}
            train(TrainSettings.of({**saved, **free, "resume": str(folder)}))
        else:
            train(TrainSettings.of({**values, "run_dir": str(folder), "resume": None}))
        set_up_logging()

    # Step 3

    @property
    def _text(self) -> str:
        """File of the text to translate."""
        real = self.folder / "corpus" / f"train.{self.corpus.languages[0]}"
        return self.synthetic.text or str(real)

    def _translate(self, model: str | list[str]) -> None:
        """Translates the text into a file, from the line at which an earlier attempt stopped."""
        output = self.folder / "translations"
        synthetic = self.synthetic
        log.info("step 3: writing the translations to %s", output)
        typed = [f"search={synthetic.search}"]
        if synthetic.search == "beam":
            typed.append(f"search.width={synthetic.width}")
        if synthetic.search == "sample":
            typed.append(f"search.seed={self.settings.seed}")
        values = {
            **compose("translate", typed),
            "model": model,
            "input": self._text,
            "output": str(output),
            "format": "moses",
            "resume": True,
            "device": self.settings.device,
        }
        translate(TranslateSettings.of(values))

    # Step 4

    def select_data(self) -> None:
        """Writes the selected pairs, and their mixture with the real pairs."""
        mixture = self.folder / "mixture.yml"
        files = [self.folder / f"synthetic.{name}" for name in self.corpus.languages]
        if mixture.exists() and all(file.exists() for file in files):
            return
        scores = np.fromiter(
            (pair.score for pair in read_translations(self.folder / "translations")), float
        )
        usable = scores[scores > -np.inf]
        if not usable.size:
            raise UserError(f"{self._text}: no line of it could be translated")
        # The best `keep` of all lines, by their log-probability per token.
        threshold = float(np.quantile(usable, 1 - self.synthetic.keep))
        count = self._write_selected(files, threshold)
        log.info(
            "step 4: wrote %s of %s synthetic pairs to %s",
            f"{count:,}",
            f"{len(scores):,}",
            self.folder / "synthetic.*",
        )
        # Real pairs for each synthetic pair.
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

    def _write_selected(self, files: list[Path], threshold: float) -> int:
        """Writes the pairs whose score reaches a threshold; returns the number of pairs.

        files: files of source and target language
        threshold: smallest log-probability per token
        """
        partial = [file.with_name(f"{file.name}.partial") for file in files]
        count = 0
        with contextlib.ExitStack() as stack:
            written = [stack.enter_context(file.open("w", encoding="utf-8")) for file in partial]
            if self.synthetic.direction == "backward":
                written.reverse()  # the text is of the target language
            source, target = written
            lines = stream_lines(find_file(self._text), "strict")
            translations = read_translations(self.folder / "translations")
            for line, translation in zip(lines, translations, strict=True):
                if translation.score >= threshold and line.strip():
                    source.write(f"{one_line(line)}\n")
                    target.write(f"{translation.text}\n")
                    count += 1
        _check_number(count, f"synthetic.keep={shown(self.synthetic.keep)}", self.settings)
        for unfinished, file in zip(partial, files, strict=True):
            # A file with its final name is complete.
            os.replace(unfinished, file)
        return count

    # Step 5

    def _train_final(self) -> float:
        """Trains a model on real and synthetic pairs; returns its test score."""
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
        self._train(folder, {**self._training_values, "data": data}, "step 5 (model of all pairs)")
        results = json.loads((folder / "results.json").read_text())
        name = self.settings.metric["name"]
        # The loss is a figure of validation only.
        final = results["scores"].get(name, {"score": results["validation"].get(name)})
        score = float(final["score"])
        log.info("%s %s %.2f; all files are in %s", results["part"], name, score, self.folder)
        return score


@dataclass(frozen=True)
class ScoredTranslation:
    """A translation.

    text: the translation
    score: log-probability per token, in nats; -inf for an empty translation
    """

    text: str
    score: float


def read_translations(file: Path) -> Iterator[ScoredTranslation]:
    """Reads an n-best list (Moses format) with one hypothesis for each sentence."""
    for line in stream_lines(file, "strict"):
        fields, log_prob = line.rsplit(" ||| ", 1)[0].rsplit(" ||| logprob= ", 1)
        text = fields.partition(" ||| ")[2]
        count = len(words(text))
        # </s> is a token too.
        yield ScoredTranslation(text, float(log_prob) / (count + 1) if count else -np.inf)
