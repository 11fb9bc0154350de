"""Training run: trains, evaluates the best weights on the test set, draws figures and suggests
commands."""

import json
import logging
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nmt.foundation.errors import Stopped, UserError, typed
from nmt.foundation.extras import installed
from nmt.foundation.json_log import chosen_formatter
from nmt.foundation.terminal import console
from nmt.storage import checkpoint as ckpt
from nmt.storage.metrics_file import read_metrics
from nmt.training.callback import Callback
from nmt.training.interruption import interruptible
from nmt.training.memory import peak_memory
from nmt.training.progress_bar import ProgressBar
from nmt.training.run_directory import RunDirectory
from nmt.training.schedule import Schedule
from nmt.training.state import TrainingProgress
from nmt.training.task import FinalResult, Task
from nmt.training.tracker import Tracker
from nmt.training.trainer import Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Components of a training run, built once after the configuration is validated.

    task: network, objective, data, tokenizer, batching, metric and search
    trainer: training loop, with a numerical precision that the device supports
    optimizer: optimizer of the trainable weights
    schedule: learning-rate schedule
    trackers: experiment trackers; empty on all ranks except rank 0
    callbacks: the callback that the configuration selects; empty if it selects none
    """

    task: Task
    trainer: Trainer
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    trackers: Sequence[Tracker]
    callbacks: Sequence[Callback]


def train_and_test(
    parts: Parts,
    files: RunDirectory,
    callbacks: Sequence[Callback],
    *,
    saved: ckpt.Checkpoint | None,
    is_over: bool,
    tests: bool,
    facts: Mapping[str, Any],
) -> float:
    """Trains to the end, evaluates the best weights, and returns their score in the task's metric.

    parts: components of the training
    files: run folder
    callbacks: callbacks that are called after the progress bar and the metrics file
    saved: checkpoint to resume from; None for a new run
    is_over: whether the resumed run has reached its limits, so that it makes no update
    tests: whether the best weights are evaluated on the test set at the end
    facts: additional entries for results.json

    Raises Stopped, after saving the state, if the run is interrupted.
    """
    task = parts.task
    bar = ProgressBar(task.unit)
    called = [
        callback for callback in (bar, files, *callbacks) if callback.every_rank or task.ranks.first
    ]
    progress = _train(parts, files, bar, called, saved, is_over)
    scores: dict[str, float] | None = None
    with interruptible(at_once=True):
        try:
            scores, score = _finish(task, files, progress, tests=tests, facts=facts)
        except KeyboardInterrupt:
            message = "test interrupted, training finished and saved; repeat the test"
            _log_stop(task, files, message)
            raise Stopped from None
        finally:
            for callback in called:
                callback.on_end(scores)
        return score


def _train(
    parts: Parts,
    files: RunDirectory,
    bar: ProgressBar,
    called: Sequence[Callback],
    saved: ckpt.Checkpoint | None,
    is_over: bool,
) -> TrainingProgress:
    """Trains to the end. If training is interrupted or fails, calls `on_end` of each callback."""
    task = parts.task
    try:
        with bar:
            return parts.trainer.fit(
                task,
                optimizer=parts.optimizer,
                schedule=parts.schedule,
                callbacks=called,
                store=files,
                resume=None if saved is None else (saved.meta["training"], saved.tensors),
                is_over=is_over,
            )
    except BaseException as error:
        if isinstance(error, Stopped):
            stop = {"trainer.stop_after": 0} if error.planned else {}
            _log_stop(task, files, "training stopped and saved; resume it", stop)
        for callback in called:
            callback.on_end(None)
        # PyTorch has no exception type for a killed DataLoader worker: its signal handler
        # raises a plain RuntimeError at any line, so only the text identifies it.
        if isinstance(error, RuntimeError) and "DataLoader worker" in str(error):
            raise UserError(
                "a DataLoader worker was killed, perhaps for lack of memory; resume from the "
                f"last checkpoint with {typed(resume=files.path)}"
            ) from error
        raise


def _log_stop(
    task: Task, files: RunDirectory, message: str, settings: Mapping[str, Any] | None = None
) -> None:
    """Draws the learning curve so far, and logs the command that resumes the stopped run.

    message: beginning of the log message, such as "training stopped and saved; resume it"
    settings: settings to append to the command
    """
    if task.ranks.first:
        _draw_curve(task, files)
    command = f"python -m nmt.{task.command} {typed(resume=files.path, **settings or {})}"
    log.info("%s with: %s", message, _with_plugins(command, files))


def _with_plugins(command: str, files: RunDirectory) -> str:
    """Returns an nmt command, with the flag --plugins added if the run needs plugins."""
    plugins = ",".join(files.meta.get("plugins", []))
    return re.sub(r"(-m nmt\.\w+)", rf"\1 --plugins {plugins}", command) if plugins else command


def _finish(
    task: Task,
    files: RunDirectory,
    progress: TrainingProgress,
    *,
    tests: bool,
    facts: Mapping[str, Any],
) -> tuple[dict[str, float], float]:
    """Evaluates the best weights on the test set, writes the results and draws the figures.
    Returns all scores, and the score in the task's metric."""
    task.ranks.wait()  # until rank 0 has written the best weights
    best = ckpt.read(files.path / ckpt.BEST)
    ckpt.load_weights(task.network, best.part("model"), best.path)
    task.network.eval()  # evaluation mode disables dropout in the test
    if tests:
        log.info("final evaluation of the best checkpoint (final_test=false skips it)")
    final = task.test() if tests else _not_tested(best)
    scores = {name: result["score"] for name, result in final.results["scores"].items()}
    if task.ranks.first:
        _conclude(task, files, progress, best, final, facts)
    # After a change of the metric, the best validation may lack the score.
    return scores, scores.get(task.metric, best.meta["metrics"].get(task.metric, math.nan))


def _conclude(
    task: Task,
    files: RunDirectory,
    progress: TrainingProgress,
    best: ckpt.Checkpoint,
    final: FinalResult,
    facts: Mapping[str, Any],
) -> None:
    """Writes the outputs and results.json, draws the figures, logs the results and suggests
    commands."""
    for name, lines in final.texts.items():
        files.write_lines(f"{name}.txt", lines)
    weights_hash = ckpt.weights_hash(best.part("model"))
    record = {
        "part": final.part,
        **final.results,
        "validation": best.meta["metrics"],
        "lower_is_better": task.better(0.0, 1.0),
        "best_update": best.meta["update"],
        "updates": progress.update,
        "training_seconds": round(progress.seconds, 1),
        "weights": weights_hash,
        "parameters": sum(p.numel() for p in task.network.parameters()),
        "peak_memory_mb": peak_memory(),
        **facts,
    }
    _draw_curve(task, files)
    task.draw(files.path)
    # The last file: a run with results is finished.
    files.write_text("results.json", json.dumps(record, indent=2, ensure_ascii=False))
    for line in final.lines:
        log.info("%s %s", final.part, line)
    log.info(
        "trained for %.0f s; best checkpoint at update %s, fingerprint of its weights %s; "
        "results are in %s",
        progress.seconds,
        progress.best_update,
        weights_hash,
        files.path,
    )
    if chosen_formatter() is not None:
        return  # each line of a log in JSON is an object
    commands = [_with_plugins(command, files) for command in task.next_commands(files.path)]
    if installed("tensorboard"):
        commands.append(f"tensorboard --logdir={shlex.quote(str(files.path))}")
    console.print("\nCommands for this model:", style="bold", highlight=False)
    for command in commands:
        console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)


def _draw_curve(task: Task, files: RunDirectory) -> None:
    records = read_metrics(files.path)
    if any(record["kind"] == "validation" for record in records) and installed("matplotlib"):
        from nmt.drawing import plots

        file = files.path / "learning_curve.png"
        plots.learning_curve(records, task.metric, file, task.title, task.unit)


def _not_tested(best: ckpt.Checkpoint) -> FinalResult:
    """Returns the final result of a run without an evaluation on the test set: the metrics of the
    best validation."""
    scores = {
        name: {"score": value, "signature": "of the best validation"}
        for name, value in best.meta["metrics"].items()
    }
    metrics = {"nll" if n == "loss" else n: value for n, value in best.meta["metrics"].items()}
    values = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
    line = f"scores of the best checkpoint: {values} (final_test=true also tests it)"
    return FinalResult(part="validation", results={"scores": scores}, lines=[line], texts={})
