"""Training run: trains, evaluates the best weights on the test set, draws figures and suggests
commands."""

import json
import logging
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nmt.foundation.errors import Stopped, UserError, typed
from nmt.foundation.extras import installed
from nmt.foundation.terminal import console
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.training.callback import Callback
from nmt.training.interruption import interruptible
from nmt.training.memory import peak_memory
from nmt.training.progress_bar import ProgressBar
from nmt.training.run_directory import RunDirectory
from nmt.training.schedule import Schedule
from nmt.training.state import TrainingProgress
from nmt.training.task import FinalResult, Task
from nmt.training.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """Training run: a task with its training settings and its run folder.

    task: network, data, objective and metrics
    trainer: settings of the training loop
    optimizer, schedule: optimizer of the network's weights, and its learning-rate schedule
    files: run folder
    callbacks: additional callbacks, called after the progress bar and the metrics file
    checkpoint: checkpoint to resume from; None for a new run
    tests: whether the best weights are evaluated on the test set at the end
    facts: additional entries for results.json
    """

    task: Task
    trainer: Trainer
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    files: RunDirectory
    callbacks: Sequence[Callback]
    checkpoint: Checkpoint | None = None
    tests: bool = True
    facts: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        """Path of the run folder."""
        return self.files.path

    def run(self) -> float:
        """Trains to the end and returns the test score by the task's metric. Raises Stopped, after
        saving the state, if the run is interrupted."""
        bar = ProgressBar(self.task.unit)
        callbacks = [
            callback
            for callback in (bar, self.files, *self.callbacks)
            if callback.every_rank or self.task.ranks.first
        ]
        try:
            with bar:
                progress = self.trainer.fit(
                    self.task,
                    optimizer=self.optimizer,
                    schedule=self.schedule,
                    callbacks=callbacks,
                    store=self.files,
                    resume=(
                        None
                        if self.checkpoint is None
                        else (self.checkpoint.meta["training"], self.checkpoint.tensors)
                    ),
                )
        except BaseException as error:
            if isinstance(error, Stopped):
                self._log_stop("training stopped and saved; resume it")
            for callback in callbacks:
                callback.on_end(None)
            # PyTorch has no exception type for a killed DataLoader worker: its signal handler
            # raises a plain RuntimeError at any line, so only the text identifies it.
            if isinstance(error, RuntimeError) and "DataLoader worker" in str(error):
                raise UserError(
                    "a DataLoader worker was killed, perhaps for lack of memory; resume from the "
                    f"last save with {typed(resume=self.folder)}"
                ) from error
            raise
        with interruptible(at_once=True):
            try:
                return self._finish(progress, callbacks)
            except KeyboardInterrupt:
                self._log_stop("test interrupted, training finished and saved; repeat the test")
                for callback in callbacks:
                    callback.on_end(None)
                raise Stopped from None

    def _log_stop(self, state: str) -> None:
        """Draws the learning curve so far, and logs the command that resumes the stopped run.

        state: text with the state of the run and the effect of the command
        """
        if self.task.ranks.first:
            self._draw_curve()
        log.info(
            "%s with: python -m nmt.%s %s",
            state,
            self.task.command,
            typed(resume=self.folder),
        )

    def _finish(self, progress: TrainingProgress, callbacks: Sequence[Callback]) -> float:
        """Evaluates the best weights on the test set, writes the results and draws the figures.
        Returns the test score."""
        task = self.task
        task.ranks.wait()  # until rank 0 has written the best weights
        best = ckpt.read(self.folder / ckpt.BEST)
        ckpt.load_weights(task.network, best.part("model"), best.path)
        task.network.eval()  # evaluation mode disables dropout in the test
        if self.tests:
            log.info(
                "testing the best checkpoint on the test set (final_test=false skips the test)"
            )
        final = task.test(self._write_answers) if self.tests else _not_tested(best)
        scores = {name: result["score"] for name, result in final.results["scores"].items()}
        if task.ranks.first:
            self._conclude(progress, best, final)
        for callback in callbacks:
            callback.on_end(scores)
        return scores.get(task.metric, best.meta["metrics"][task.metric])

    def _write_answers(self, name: str, text: str) -> None:
        if self.task.ranks.first:
            self.files.write_text(name, text)

    def _conclude(self, progress: TrainingProgress, best: Checkpoint, final: FinalResult) -> None:
        """Writes results.json, draws the figures, logs the results and suggests commands."""
        task = self.task
        weights_hash = ckpt.weights_hash(best.part("model"))
        record = {
            "part": final.part,
            **final.results,
            "validation": best.meta["metrics"],
            "best_update": best.meta["update"],
            "updates": progress.update,
            "training_seconds": round(progress.seconds, 1),
            "weights": weights_hash,
            "parameters": sum(p.numel() for p in task.network.parameters()),
            "peak_memory_mb": peak_memory(),
            **self.facts,
        }
        self.files.write_text("results.json", json.dumps(record, indent=2, ensure_ascii=False))
        self._draw_curve()
        task.draw(self.folder)
        for line in final.lines:
            log.info("%s %s", final.part, line)
        log.info(
            "trained for %.0f s; best checkpoint at update %s, fingerprint of its weights %s; "
            "results are in %s",
            progress.seconds,
            progress.best_update,
            weights_hash,
            self.folder,
        )
        commands = task.next_commands(self.folder)
        plugins = ",".join(self.files.meta.get("plugins", []))
        if plugins:
            permitted = rf"\1 --plugins {plugins}"
            commands = [re.sub(r"(-m nmt\.\w+)", permitted, command) for command in commands]
        if installed("tensorboard"):
            commands.append(f"tensorboard --logdir={shlex.quote(str(self.folder))}")
        console.print("\nCommands for this model:", style="bold", highlight=False)
        for command in commands:
            console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)

    def _draw_curve(self) -> None:
        records = self.files.records()
        if any(record["kind"] == "validation" for record in records) and installed("matplotlib"):
            from nmt.drawing import plots

            file = self.folder / "learning_curve.png"
            plots.learning_curve(records, self.task.metric, file, self.task.title, self.task.unit)


def _not_tested(best: Checkpoint) -> FinalResult:
    """Returns the metrics of the best validation as the final result of a run without a test."""
    scores = {
        name: {"score": value, "signature": "of the best validation"}
        for name, value in best.meta["metrics"].items()
    }
    metrics = {"nll" if n == "loss" else n: value for n, value in best.meta["metrics"].items()}
    values = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
    line = f"scores of the best checkpoint: {values} (final_test=true also tests it)"
    return FinalResult(part="validation", results={"scores": scores}, lines=[line])
