"""Implements `nmt.train` and `nmt.evaluate` for calls from Python."""

import difflib
import json
import logging
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.analysis.evaluation import scores_of
from nmt.configuration.configure import configure_single
from nmt.configuration.training_settings import TrainingSettings
from nmt.data import as_list
from nmt.data.text_encoding import check_lines
from nmt.foundation.configurations import digest
from nmt.foundation.errors import UserError, quoted
from nmt.foundation.json_log import choose_format, chosen_formatter
from nmt.foundation.part_limits import shown
from nmt.foundation.plugins import permitting
from nmt.inference.translator import Translator
from nmt.loading import load
from nmt.metric import Metric, Result
from nmt.pipeline import run_training
from nmt.storage.cache import build_once, cache_folder
from nmt.storage.metrics_file import read_metrics
from nmt.training.callback import Callback, check_callbacks

_training = threading.RLock()
"""Lock of the thread that is training. A callback of a training may train another model."""


@dataclass(frozen=True)
class TrainedRun:
    """A finished training run.

    folder: run folder
    score: score in the configured metric on the test set, or on the validation set without a final
        test
    plugins: packages outside nmt that the run uses
    """

    folder: Path
    score: float
    plugins: tuple[str, ...] = ()

    @property
    def results(self) -> dict[str, Any]:
        """Content of results.json: final scores with signatures, updates, seconds and versions."""
        return json.loads((self.folder / "results.json").read_text(encoding="utf-8"))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Records of metrics.jsonl: training and validation metrics in chronological order."""
        return read_metrics(self.folder)

    @cached_property
    def translator(self) -> Translator:
        """Translator with the best checkpoint of the run."""
        translator = load(self.folder, plugins=self.plugins)
        assert isinstance(translator, Translator)
        return translator


def train(
    *overrides: str,
    data: Any = None,
    callbacks: Sequence[Callback] = (),
    plugins: Sequence[str] = (),
    **unknown: Any,
) -> TrainedRun:
    """Trains a translation model and evaluates it on the test set.

    overrides: command-line words, such as "decoder=luong", "run_dir=OUT" or "resume=OUT"
    data: a `datasets.DatasetDict` with the splits train, validation and test, or a
        `datasets.Dataset`; data.source and data.target name the columns. None uses the data in
        `overrides`
    callbacks: trainer callbacks, called after the callback of the configuration
    plugins: packages outside nmt whose code may be used
    unknown: other arguments, which are errors

    Raises UserError for invalid settings or data, and Stopped if the training is interrupted.
    """
    for name, value in unknown.items():
        parameters = ("data", "callbacks", "plugins")
        setting = json.dumps(f"{name}={shown(value)}", ensure_ascii=False)
        nearest = difflib.get_close_matches(name, parameters, 1) or [setting]
        raise UserError(f"nmt.train: no parameter {name}; did you mean {nearest[0]}?")
    words = list(overrides)
    plugins = [plugins] if isinstance(plugins, str) else plugins
    check_callbacks(callbacks)
    _check_settings(words)
    if data is not None:
        if not hasattr(data, "save_to_disk"):
            raise UserError(
                "nmt.train: data must be a datasets.Dataset or DatasetDict, not "
                f"{type(data).__name__}; datasets.Dataset.from_dict makes one from lists"
            )
        splits = data.keys() if hasattr(data, "keys") else ()
        absent = [part for part in ("validation", "test") if part not in splits]
        # data=hub also reads folders written by `save_to_disk`. Settings of the caller come last.
        data_words = ["data=hub", f"data.path={quoted(str(_saved(data)))}"]
        words = [*data_words, *(f"data.{part}=null" for part in absent), *words]
    with permitting(plugins), _process_unchanged():
        settings = configure_single("train", words)
        assert isinstance(settings, TrainingSettings)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        choose_format(settings.log == "json")
        folder, score = run_training.train(settings, callbacks)
    return TrainedRun(folder, score, tuple(plugins))


def _check_settings(words: Sequence[Any]) -> None:
    """Raises UserError if a setting is not a string, or is a flag of the command line."""
    for word in words:
        if not isinstance(word, str):
            raise UserError(
                f'nmt.train: settings must be strings such as "decoder=luong", not {word!r}'
            )
        if word.startswith("-"):
            raise UserError(
                f"nmt.train: {word} is a flag of the command line; run `python -m nmt.train "
                f"{word}`, or use the parameter plugins=[…] for plugins"
            )


def _saved(data: Any) -> Path:
    """Saves a data set to a cache folder and returns the folder, so that the run can be resumed and
    repeated."""
    parts = dict(data) if hasattr(data, "values") else {"": data}
    for split, part in parts.items():
        name = f"nmt.train: data{f', split {split}' if split else ''}"
        if not len(part):
            raise UserError(f"{name}: is empty; remove the split, or add rows")
        if part.format["type"] == "custom":
            raise UserError(f"{name}: has a transform, which cannot be saved; use map instead")
    # Fingerprints hash content and transformations, so equal data sets share a folder.
    name = digest([(split, part._fingerprint) for split, part in parts.items()])
    folder = cache_folder() / "datasets" / name
    # Formats such as numpy may hide columns.
    build_once(folder, "data set", lambda path: data.with_format(None).save_to_disk(str(path)))
    return folder


@contextmanager
def _process_unchanged() -> Iterator[None]:
    """Restores logging, the number of threads, the default data type and the random number
    generators at the end of a `with` block, and closes the run's log file.

    Raises UserError if another thread is training, because all of these belong to the process.
    """
    logger = logging.getLogger("nmt")
    if not _training.acquire(blocking=False):
        raise UserError(
            "nmt.train: another thread of this process is training; start one process for each "
            "training, or a sweep (python -m nmt.train -m)"
        )
    with ExitStack() as at_end:
        at_end.callback(_training.release)
        at_end.callback(torch.set_default_dtype, torch.get_default_dtype())
        at_end.callback(torch.set_num_threads, torch.get_num_threads())
        at_end.callback(choose_format, chosen_formatter() is not None)
        at_end.callback(random.setstate, random.getstate())
        at_end.callback(np.random.set_state, np.random.get_state())
        at_end.callback(logger.setLevel, logger.level)
        at_end.callback(setattr, logger, "propagate", logger.propagate)
        at_end.callback(setattr, logger, "handlers", logger.handlers)  # log handlers of the caller
        at_end.enter_context(torch.random.fork_rng(devices=range(torch.cuda.device_count())))
        logger.handlers = []  # the run closes only its own handlers
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            for handler in logger.handlers:
                handler.close()


def evaluate(
    model: Translator | str | Path,
    data: Any,
    *,
    source: str,
    reference: str | Sequence[str],
    metric: Metric | None = None,
    plugins: Sequence[str] = (),
) -> dict[str, Result]:
    """Returns the scores of a model's translations, with sacreBLEU signatures: BLEU, chrF, TER,
    exact match.

    model: a translator, a run folder or a checkpoint file
    data: a `datasets.Dataset`, or another mapping from column names to lists of strings
    source: name of the source column
    reference: name of the reference column, or names of several columns, which contain several
        references of each translation
    metric: metric options; by default, BLEU's tokenizer depends on the target language
    plugins: packages outside nmt whose code the model may use

    Raises UserError if a column is missing, columns are empty or differ in length, or the model is
    a classifier, and TypeError if a cell is not text or `metric` is not a `Metric`.
    """
    if not isinstance(metric, Metric | None):
        raise TypeError(f"metric: must be a nmt.metric.Metric, not {type(metric).__name__}")
    translator = model if isinstance(model, Translator) else load(model, plugins=plugins)
    if not isinstance(translator, Translator):
        raise UserError(f"model={model}: must be a translation model, not a classifier")
    if not as_list(reference):
        raise UserError("reference: give the name of a column")
    sentences, *references = _columns(data, [source, *as_list(reference)])
    return scores_of(translator, metric or Metric(), sentences, references)[1]


def _lines(data: Any, name: str) -> list[str]:
    """Returns a column of a data set. Raises TypeError if a cell is not text."""
    if isinstance(data[name], str):
        raise TypeError(f"data: column {name}: must be a list of strings, not a string")
    try:
        return check_lines(data[name])
    except TypeError as error:
        raise TypeError(f"data: column {name}: {error}") from error


def _columns(data: Any, names: Sequence[str]) -> list[list[str]]:
    """Returns columns of a data set. Raises UserError unless they exist, have the same number of
    rows, and at least one row."""
    if data is None or isinstance(data, Sequence):
        raise UserError(
            "data: must be a datasets.Dataset, or a mapping from column names to lists of "
            f"strings, not {type(data).__name__}"
        )
    if hasattr(data, "with_format"):
        data = data.with_format(None)  # formats such as numpy may hide columns
    available = getattr(data, "column_names", None) or list(data)
    missing = [name for name in names if name not in available]
    if missing:
        raise UserError(
            f"data: column {missing[0]} not found (available: {', '.join(map(str, available))})"
        )
    first, *others = [_lines(data, name) for name in names]
    for name, lines in zip(names[1:], others, strict=True):
        if len(lines) != len(first) or not lines:
            raise UserError(
                f"data: the columns {names[0]} and {name} must have the same number of rows, at "
                f"least one (got {len(first):,} and {len(lines):,})"
            )
    return [first, *others]
