"""Training from Python: `nmt.train`."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from nmt.configuration.configure import configure
from nmt.configuration.training_settings import TrainingSettings
from nmt.foundation.errors import quoted
from nmt.foundation.plugins import permitting
from nmt.inference.translator import Translator
from nmt.loading import load
from nmt.pipeline import run_training
from nmt.storage.cache import cache_folder
from nmt.storage.metrics_file import read_metrics
from nmt.training.callback import Callback


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    folder: run directory
    score: test score in the chosen metric
    plugins: packages outside nmt that the run needs
    """

    folder: Path
    score: float
    plugins: tuple[str, ...] = ()

    @property
    def results(self) -> dict[str, Any]:
        """Content of results.json: final scores with signatures, updates, seconds, versions."""
        return json.loads((self.folder / "results.json").read_text(encoding="utf-8"))

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Content of metrics.jsonl: figures of training and validation, in their order."""
        return read_metrics(self.folder)

    @cached_property
    def translator(self) -> Translator:
        """The best model of the run."""
        translator = load(self.folder, plugins=self.plugins)
        assert isinstance(translator, Translator)
        return translator


def train(
    *overrides: str,
    data: Any = None,
    callbacks: Sequence[Callback] = (),
    plugins: Sequence[str] = (),
) -> TrainedRun:
    """Trains a translation model and tests it.

    overrides: words of the command line, such as "decoder=luong", "run_dir=OUT", "resume=OUT"
    data: a `datasets.DatasetDict` with the splits train, validation and test, or a
        `datasets.Dataset`; data.source and data.target name the columns. None: as in `overrides`
    callbacks: callbacks of the trainer, called after that of the configuration
    plugins: packages outside nmt whose code may be used

    Raises UserError for wrong settings or data, Stopped if it was interrupted and saved.
    """
    words = list(overrides)
    if data is not None:
        # data=hub reads such folders too
        words += ["data=hub", f"data.path={quoted(str(_saved(data)))}"]
    with permitting(plugins), _process_unchanged():
        settings = configure("train", words)
        assert isinstance(settings, TrainingSettings)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        folder, score = run_training.train(settings, callbacks)
    return TrainedRun(folder, score, tuple(plugins))


def _saved(data: Any) -> Path:
    """A folder in the cache with the data set, so that the run can be resumed and repeated."""
    parts = data.values() if hasattr(data, "values") else [data]
    # The library hashes content and transformations, so equal data sets share a folder.
    name = "-".join(part._fingerprint for part in parts)
    folder = cache_folder() / "datasets" / name
    if not folder.is_dir():
        data.save_to_disk(str(folder))
    return folder


@contextmanager
def _process_unchanged() -> Iterator[None]:
    """Closes the log file of the run afterwards, and restores logging and the number of threads."""
    threads = torch.get_num_threads()
    logger = logging.getLogger("nmt")
    handlers = logger.handlers[:]
    level = logger.level
    propagate = logger.propagate
    try:
        yield
    finally:
        for handler in logger.handlers:
            handler.close()
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate
        torch.set_num_threads(threads)
