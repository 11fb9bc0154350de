"""One training run, from its parts to its results: train, test the best weights, draw, say what to type next."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from nmt.foundation.errors import Stopped, typed
from nmt.foundation.extras import installed
from nmt.foundation.terminal import console
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.training.memory import Trimming, peak_memory
from nmt.training.progress_bar import ProgressBar
from nmt.training.run_directory import RunDirectory
from nmt.training.schedule import Schedule
from nmt.training.state import TrainingProgress
from nmt.training.task import Task
from nmt.training.tracking import Tracking
from nmt.training.trainer import Observer, Trainer, Update

log = logging.getLogger(__name__)


class TrainingRun:
    """A task, how it is trained, and the folder that it owns. `saved`: the checkpoint to resume from. `facts` are kept
    with the results."""

    def __init__(
        self,
        task: Task,
        trainer: Trainer,
        optimizer: torch.optim.Optimizer,
        schedule: Schedule,
        files: RunDirectory,
        tracking: Tracking,
        *,
        saved: Checkpoint | None = None,
        keep_answers: bool = False,
        facts: Mapping[str, Any],
    ) -> None:
        self.task, self.trainer, self.optimizer, self.schedule = task, trainer, optimizer, schedule
        self.files, self.tracking, self.saved = files, tracking, saved
        self.keep_answers, self.facts = keep_answers, facts

    @property
    def folder(self) -> Path:
        return self.files.path

    def go(self) -> float:
        """Trains to the end; returns the test score of the task's metric."""
        task, bar = self.task, ProgressBar(self.task.unit)
        observers: list[Observer] = [Trimming()]
        if task.ranks.first:
            observers = [bar, self.files, self.tracking, *observers]
            observers += [_Answers(task, self.files)] if self.keep_answers else []
        resumed = None if self.saved is None else (self.saved.meta["training"], self.saved.tensors)
        try:
            with bar:
                progress = self.trainer.fit(
                    task,
                    optimizer=self.optimizer,
                    schedule=self.schedule,
                    observers=observers,
                    store=self.files,
                    resume=resumed,
                )
        except Stopped:
            if task.ranks.first:
                self._draw_curve()
            log.warning(
                "stopped and saved. Go on with: python -m nmt.%s %s",
                task.command,
                typed(resume=self.folder),
            )
            self.tracking.close(None)
            raise
        except BaseException:
            self.tracking.close(None)
            raise
        return self._finish(progress)

    def _finish(self, progress: TrainingProgress) -> float:
        ranks = self.task.ranks
        ranks.wait()  # until it is written
        best = ckpt.read(self.folder / ckpt.BEST)
        ckpt.load_weights(self.task.network, best.part("model"), best.path)
        self.task.network.eval()
        part, results, lines = self.task.test(
            self.files.write_text if ranks.first else lambda *_: None
        )
        scores, chosen = results["scores"], self.task.metric
        score = scores[chosen]["score"] if chosen in scores else best.meta["metrics"][chosen]
        if not ranks.first:
            return score
        record = {
            "part": part,
            **results,
            "validation": best.meta["metrics"],
            "best_update": best.meta["update"],
            "updates": progress.update,
            "training_seconds": round(progress.seconds, 1),
            "parameters": sum(p.numel() for p in self.task.network.parameters()),
            "peak_memory_mb": peak_memory(),
            **self.facts,
        }
        self.files.write_text("results.json", json.dumps(record, indent=2, ensure_ascii=False))
        self.tracking.close({name: each["score"] for name, each in results["scores"].items()})
        self._draw_curve()
        self.task.draw(self.folder)
        for line in lines:
            log.info("%s %s", part, line)
        log.info(
            "trained %.0f s, best at update %s; everything is in %s",
            progress.seconds,
            progress.best_update,
            self.folder,
        )
        shown = (
            [f"tensorboard --logdir={shlex.quote(str(self.folder))}"]
            if installed("tensorboard")
            else []
        )
        _say_next([*self.task.next_commands(self.folder), *shown])
        return score

    def _draw_curve(self) -> None:
        records = self.files.records()
        if any(record["kind"] == "validation" for record in records) and installed("matplotlib"):
            from nmt.drawing import plots

            file = self.folder / "learning_curve.png"
            plots.learning_curve(records, self.task.metric, file, self.task.title, self.task.unit)


class _Answers:
    """Observer that keeps what each validation answered, in validation-UPDATE.txt."""

    def __init__(self, task: Task, files: RunDirectory) -> None:
        self.task, self.files = task, files

    def on_update(self, update: Update) -> None:
        pass

    def on_validation(
        self, update: int, epoch: float, metrics: dict[str, float], best: bool
    ) -> None:
        self.files.write_text(
            f"validation-{update:08d}.txt", "".join(line + "\n" for line in self.task.answers)
        )


def _say_next(commands: list[str]) -> None:
    say: Callable[..., None] = console.print
    say("\nNext:", style="bold", highlight=False)
    for command in commands:
        say("  " + command, highlight=False, markup=False, soft_wrap=True)
