"""The steps of nmt.backtranslate, each done once, in one folder:

    corpus/        the real pairs: train.SOURCE, train.TARGET, validation.…, test.…; what they are is in backtranslation.json
    reverse/       the model that translates, unless another is given: a run of nmt.train with the languages exchanged
    translations   of the text, with log-probabilities; grows while they are made
    synthetic.…    the pairs that are kept
    mixture.yml    how they are mixed with the real ones
    model/         a run of nmt.train on the mixture

A step that was interrupted goes on where it stopped; one that is finished is not done again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from nmt.configuration import build
from nmt.configuration.compose import compose
from nmt.configuration.configure import changed, saved_run
from nmt.configuration.faults import shown
from nmt.configuration.model_settings import TranslateSettings
from nmt.configuration.training_settings import BacktranslateSettings, TrainSettings
from nmt.data import Pairs
from nmt.data.lines import find_file, stream_lines
from nmt.foundation.errors import UserError
from nmt.foundation.terminal import set_up_logging
from nmt.inference.output_formats import one_line
from nmt.metric import WITHOUT_SPACES
from nmt.pipeline.assembly import loaded
from nmt.pipeline.fingerprint import hash_of_files
from nmt.pipeline.run_training import flat
from nmt.storage import checkpoint as ckpt
from nmt.storage.files import write_atomically
from nmt.storage.lock import Lock
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)
FREE = ("device", "run_dir", "resume", "sweep", "tracker", "keep_validations")
"""Keys that may differ when the command goes on."""
NOTES = "backtranslation.json"


class Backtranslation:
    """`train` and `translate` are what the commands of these names do."""

    def __init__(
        self,
        settings: BacktranslateSettings,
        train: Callable[[TrainSettings], float],
        translate: Callable[[TranslateSettings], None],
    ) -> None:
        self.settings, self.train, self.translate = settings, train, translate
        self.folder, self.how = (
            Path(str(settings.run_dir)),
            build.make(settings.values, "synthetic"),
        )
        self.languages = ("source", "target")

    def go(self) -> float:
        """Does what is left to do; returns the test score of the last model."""
        if self.how.text is not None:
            find_file(self.how.text)
        if self.how.model is not None:
            self._check_direction(self.how.model)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run_dir={self.folder}: cannot be made ({error.strerror})") from error
        with Lock(self.folder / ".lock", f"run_dir={self.folder}"):
            try:
                return self._steps()
            except (KeyboardInterrupt, SystemExit):
                log.warning(
                    "stopped: the same command of nmt.backtranslate goes on with this step and all others"
                )
                raise

    def _steps(self) -> float:
        self._corpus()
        if not (self.folder / "model" / "results.json").exists():
            self._translations(self.how.model or str(self._reverse()))
            self._select()
        return self._final()

    def _check_direction(self, model: str | list[str]) -> None:
        """Raises UserError if the models that translate cannot be read, or translate the other way."""
        data = self.settings.data
        named = data.get("source"), data.get("target")
        wanted = named if self.how.direction == "forward" else named[::-1]
        for path in [model] if isinstance(model, str) else model:
            try:
                saved = ckpt.read(ckpt.find_checkpoint(path))
                ckpt.check_kind(saved, "train")
            except UserError as error:
                raise UserError(str(error).replace("model=", "synthetic.model=")) from None
            found = tuple(saved.meta.get("languages") or ())
            if len(set(named)) == 2 and found == wanted[::-1]:
                says = f"translates from {found[0]} to {found[1]}, and {wanted[0]} to {wanted[1]} is needed"
                raise UserError(
                    f"synthetic.model={path}: {says} (synthetic.direction={self.how.direction})"
                )

    def _corpus(self) -> None:
        """The real pairs as files, whatever they come from. Raises UserError if the folder was begun with other settings, or
        holds something else."""
        notes, folder = self.folder / NOTES, self.folder / "corpus"
        settings = flat(
            {key: value for key, value in self.settings.values.items() if key not in FREE}
        )
        text = hash_of_files(str(find_file(self.how.text))) if self.how.text else None
        if not notes.exists() or not all(
            (folder / name).exists() for name in _noted(notes).get("files", [""])
        ):
            others = [
                path.name for path in self.folder.iterdir() if path.name not in (".lock", "corpus")
            ]
            if others and not notes.exists():
                why = f"holds {others[0]}, which nmt.backtranslate has not made; choose another"
                raise UserError(f"run_dir={self.folder}: {why}")
            if self.how.text:
                self._check_text(self.how.text)
            splits = loaded(self.settings.values, build.make(self.settings.values, "filters"))
            batch = self.settings.batching.get("sentences") or 1
            if self.how.real and len(splits.train) < batch:
                says = f"{len(splits.train):,} pairs, fewer than a batch of {batch:,}: lower batching.sentences"
                raise UserError(f"{splits.train.name}: {says}, or set synthetic.real=0")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            parts = {
                "train": splits.train,
                "validation": splits.validation,
                "test": splits.test,
                **splits.more_validation,
            }
            for name, pairs in parts.items():
                if pairs is not None:
                    _write_pairs(folder / name, splits.languages, pairs)
            beside = [str(folder / name) for name in splits.more_validation]
            said = {
                "languages": splits.languages,
                "test": splits.test is not None,
                "beside": beside,
            }
            said |= {"pairs": len(splits.train), "settings": settings, "text": text}
            said["files"] = sorted(file.name for file in folder.iterdir())
            write_atomically(notes, json.dumps(said, indent=2, ensure_ascii=False).encode())
            log.info("step 1: %s real pairs are in %s", f"{len(splits.train):,}", folder)
        try:
            self.facts = _noted(notes)
            self.languages, begun = tuple(self.facts["languages"]), self.facts["settings"]
        except (KeyError, TypeError) as error:
            raise UserError(f"{notes}: is damaged; remove it, or choose another run_dir") from error
        if self.facts.get("text") != text:
            raise UserError(
                f"synthetic.text={self.how.text}: has changed since {self.folder} was begun; choose another run_dir"
            )
        for key in sorted({*settings, *begun}):
            if begun.get(key) != (value := settings.get(key)):
                what = f"was begun with {key}={shown(begun.get(key))}, not {shown(value)}; choose another folder"
                if (self.folder / "reverse" / "results.json").exists():
                    what += f" (with synthetic.model={self.folder / 'reverse'} it needs no other model to translate)"
                raise UserError(f"run_dir={self.folder}: {what}")

    def _check_text(self, name: str) -> None:
        """Raises UserError if a text cannot be made pairs that a mixture takes."""
        lines = sum(bool(line.strip()) for line in stream_lines(find_file(name), "strict"))
        if not lines:
            raise UserError(f"synthetic.text={name}: there are no words in it")
        self._check_number(int(self.how.keep * lines), f"synthetic.text={name}")

    def _check_number(self, pairs: int, what: str) -> None:
        """Raises UserError if so few pairs are no batch."""
        batch = self.settings.batching.get("sentences") or 1
        if pairs < batch:
            raise UserError(
                f"{what}: makes {pairs:,} pairs, fewer than a batch of {batch:,}: lower batching.sentences, or give "
                "more text or a larger synthetic.keep (in another run_dir, if something is in this one)"
            )

    def _reverse(self) -> Path:
        """The model of the other direction, trained. What belongs to one language goes with it."""
        folder, source, target = self.folder / "reverse", *self.languages
        data = {
            "_target_": "nmt.data.sources.text.TextFiles",
            **self._real(),
            "source": target,
            "target": source,
        }
        values = {**self._plain, "data": data}
        if self.settings.vectors:
            values["vectors"] = self.settings.vectors[::-1]
        if self.settings.freeze:
            other = {"source_embedding": "target_embedding", "target_embedding": "source_embedding"}
            values["freeze"] = [other.get(name, name) for name in self.settings.freeze]
        tokenizer, metric = self.settings.tokenizer, self.settings.metric
        if tokenizer.get("target"):
            values["tokenizer"] = {
                **tokenizer,
                "model": tokenizer["target"],
                "target": tokenizer["model"],
            }
        if metric["tokenize"] in WITHOUT_SPACES.values():
            values["metric"] = {**metric, "tokenize": "auto"}
        self._trained(folder, values, "step 2: the model that translates backwards")
        return folder

    def _real(self) -> dict[str, Any]:
        corpus, test = self.folder / "corpus", self.facts["test"]
        validation = [str(corpus / "validation"), *self.facts["beside"]]
        return {
            "train": str(corpus / "train"), "validation": validation, "test": str(corpus / "test") if test else None,
            "split": 0.0, "factors": None, "alignment": None,
        }  # fmt: skip

    @property
    def _plain(self) -> dict[str, Any]:
        """The settings as nmt.train has them."""
        return {key: value for key, value in self.settings.values.items() if key != "synthetic"}

    def _trained(self, folder: Path, values: Mapping[str, Any], what: str) -> None:
        """A run in a folder: new, gone on with, or finished already."""
        if (folder / "results.json").exists():
            return
        log.info("%s is trained in %s", what, folder)
        if (folder / ckpt.LAST).exists():
            saved = changed(saved_run(str(folder), "train"), "train", ["trainer.stop_after=0"])
            free = {
                key: self.settings.values[key] for key in ("device", "tracker", "keep_validations")
            }
            self.train(TrainSettings.of({**saved, **free, "resume": str(folder)}))
        else:
            self.train(TrainSettings.of({**values, "run_dir": str(folder), "resume": None}))
        set_up_logging()

    def _translations(self, model: str | list[str]) -> None:
        """The translations of the text, which grow in a file."""
        how, done = self.how, self.folder / "translations"
        if done.exists() and (count := _lines(done)) != (needed := _lines(find_file(self._text))):
            says = f"is damaged: {count:,} lines, not {needed:,}. Delete it; the same command makes it again"
            raise UserError(f"{done}: {says}")
        log.info("step 3: the text is translated into %s", done)
        typed = [
            f"search={how.search}",
            *([f"search.width={how.width}"] if how.search == "beam" else []),
        ]
        if how.search == "sample":
            typed.append(f"search.seed={self.settings.seed}")
        values = {
            **compose("translate", typed), "model": model, "input": self._text, "output": str(done), "format": "moses",
            "resume": True, "device": self.settings.device,
        }  # fmt: skip
        self.translate(TranslateSettings.of(values))

    @property
    def _text(self) -> str:
        """The text that is translated."""
        return self.how.text or str(self.folder / "corpus" / f"train.{self.languages[0]}")

    def _select(self) -> None:
        """The pairs that are kept, and how they are mixed with the real ones."""
        mixture, pairs = (
            self.folder / "mixture.yml",
            [self.folder / f"synthetic.{name}" for name in self.languages],
        )
        if mixture.exists() and all(file.exists() for file in pairs):
            return
        found = self.folder / "translations"
        scores = np.fromiter((score for _, score in _read_translations(found)), float)
        usable = scores > -np.inf
        if not usable.any():
            raise UserError(f"{self._text}: no line of it could be translated")
        least = np.quantile(scores[usable], 1 - self.how.keep)
        first, second = self.languages if self.how.direction == "forward" else self.languages[::-1]
        files = {name: self.folder / f"synthetic.{name}" for name in (first, second)}
        kept = 0
        with contextlib.ExitStack() as stack:
            writing = {
                name: stack.enter_context(
                    file.with_name(f"{file.name}.partial").open("w", encoding="utf-8")
                )
                for name, file in files.items()
            }
            lines = stream_lines(find_file(self._text), "strict")
            for line, (text, score) in zip(lines, _read_translations(found), strict=True):
                if score >= least and line.strip():
                    writing[first].write(f"{one_line(line)}\n")
                    writing[second].write(f"{text}\n")
                    kept += 1
        self._check_number(kept, f"synthetic.keep={shown(self.how.keep)}")
        for file in files.values():
            os.replace(file.with_name(f"{file.name}.partial"), file)
        log.info(
            "step 4: %s of %s pairs are kept in %s",
            f"{kept:,}",
            f"{len(scores):,}",
            self.folder / "synthetic.*",
        )
        real = self.how.real * self.facts["pairs"] / kept  # sentences of each for one of the other
        datasets = {"synthetic": "synthetic", **({"real": "corpus/train"} if real else {})}
        shares = ["synthetic 1.0", *([f"real {real:.9f}"] if real else []), "until synthetic inf"]
        write_atomically(
            mixture,
            yaml.safe_dump({"datasets": datasets, "stages": ["all"], "all": shares}).encode(),
        )

    def _final(self) -> float:
        """The model of all pairs, trained; its test score."""
        folder, real, how = self.folder / "model", self._real(), self.how
        data = {
            "_target_": "nmt.data.sources.mix.Mix", "config": str(self.folder / "mixture.yml"), "validation": real["validation"],
            "test": real["test"], "source": self.languages[0], "target": self.languages[1],
            "tags": {"synthetic": how.tag} if how.tag and how.direction == "backward" else None,
        }  # fmt: skip
        self._trained(folder, {**self._plain, "data": data}, "step 5: the model of all pairs")
        results = json.loads((folder / "results.json").read_text())
        name = self.settings.metric["name"]
        score = (
            results["scores"][name]["score"]
            if name in results["scores"]
            else results["validation"][name]
        )
        log.info("%s %s %.2f; everything is in %s", results["part"], name, score, self.folder)
        return float(score)


def _noted(file: Path) -> dict[str, Any]:
    """What a folder was begun with. Raises UserError if that cannot be read."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: is damaged; remove it, or choose another run_dir") from error


def _lines(file: Path) -> int:
    return sum(1 for _ in stream_lines(file, "strict"))


def _write_pairs(base: Path, languages: tuple[str, str], pairs: Pairs) -> None:
    for language, lines in zip(languages, (pairs.source, pairs.target), strict=True):
        with Path(f"{base}.{language}").open("w", encoding="utf-8") as file:
            file.writelines(f"{one_line(line)}\n" for line in lines)


def _read_translations(file: Path) -> Iterator[tuple[str, float]]:
    """Each translation with its log-probability per word; minus infinity for what says nothing."""
    for line in stream_lines(file, "strict"):
        rest, _, _ = line.rpartition(" ||| ")
        rest, _, log_prob = rest.rpartition(" ||| logprob= ")
        text = rest.partition(" ||| ")[2]
        count = len(words(text))
        yield text, float(log_prob) / (count + 1) if count else -np.inf
