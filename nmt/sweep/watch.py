"""Progress display of a sweep, computed from the files in the run folders."""

import logging
import statistics
from collections.abc import Mapping, Sequence

from nmt.foundation.progress import ProgressLines, duration
from nmt.metric import score_text
from nmt.sweep.run_status import Run, RunState

log = logging.getLogger(__name__)
QUIET_SECONDS = 60.0
"""Seconds between two progress messages while no run starts or ends."""


class SweepProgress:
    """Progress display of a sweep: log messages for started and ended runs, a line per running run.
    A warning that occurs in several runs is shown once.

    runs: runs of the sweep
    metric: name of the validation score to show
    """

    def __init__(self, runs: Sequence[Run], metric: str) -> None:
        self.runs = list(runs)
        self.metric = metric
        self._states = {run.name: run.state for run in runs}
        self._warnings: set[str] = set()
        self._lines = ProgressLines(QUIET_SECONDS)
        self._lines.postpone()

    def update(self) -> None:
        """Reads the states of all runs of a sweep, and updates the progress display."""
        states = {run.name: run.state for run in self.runs}
        for run in self.runs:
            if states[run.name] is not self._states[run.name]:
                self._log_change(run, states)
        self._states = states
        running = [run for run in self.runs if states[run.name] is RunState.RUNNING]
        finished = sum(state is RunState.FINISHED for state in states.values())
        self._lines.show(
            *(f"{run.name}: {progress_of(run, self.metric)}" for run in running),
            overall(self.runs, states),
            share=finished / len(self.runs),
        )

    def _log_change(self, run: Run, states: Mapping[str, RunState]) -> None:
        """Logs that a run has begun or ended. At the end of a run, also logs its warnings, except
        warnings that are already logged for another run."""
        progress = overall(self.runs, states)
        events = {
            RunState.RUNNING: "started",
            RunState.FINISHED: f"finished, {best_score(run, self.metric)}; {progress}",
            RunState.FAILED: f"failed: {run.record().get('failure')}; {progress}",
        }
        event = events.get(states[run.name])
        if event is not None:
            log.info("%s: %s", run.name, event)
            self._lines.postpone()
        is_ended = states[run.name] in (RunState.FINISHED, RunState.FAILED)
        for warning in run.warnings() if is_ended else ():
            if warning not in self._warnings:
                self._warnings.add(warning)
                log.warning("%s: %s (shown once for all runs)", run.name, warning)

    def close(self) -> None:
        self.update()
        self._lines.close()


def progress_of(run: Run, metric: str) -> str:
    """Returns the progress of a run, e.g. `epoch 3.2, update 40 of 90, train_loss 2.31`."""
    latest = run.latest()
    training = latest.get("train")
    validation = latest.get("validation", {})
    parts = []
    if training is not None:
        parts = [
            f"epoch {training['epoch']:.1f}",
            f"update {training['update']:,} of {training['total']:,}",
            f"train_loss {training['loss']:.3f}",
        ]
    if metric in validation:
        parts.append(f"validation {score_text(metric, validation[metric])}")
    return ", ".join(parts) or "starting up"


def best_score(run: Run, metric: str) -> str:
    """Returns the best validation score of a run as text, e.g. `validation bleu 20.10`."""
    scores = [entry[metric] for entry in run.validations() if entry.get("best") and metric in entry]
    return f"validation {score_text(metric, scores[-1])}" if scores else "no validation yet"


def overall(runs: Sequence[Run], states: Mapping[str, RunState]) -> str:
    """Returns the progress of a sweep, e.g. `3 of 12 runs finished, 2 running, 7 waiting`."""
    count = {state: sum(states[run.name] is state for run in runs) for state in RunState}
    parts = [f"{count[RunState.FINISHED]} of {len(runs)} runs finished"]
    others = {
        "running": count[RunState.RUNNING],
        "failed": count[RunState.FAILED],
        "eliminated": count[RunState.HALTED],
        "waiting": count[RunState.WAITING] + count[RunState.STOPPED],
    }
    parts += [f"{number} {name}" for name, number in others.items() if number]
    seconds = time_left(runs, states)
    if seconds:
        parts.append(f"about {duration(seconds)} left")
    return ", ".join(parts)


def time_left(runs: Sequence[Run], states: Mapping[str, RunState]) -> float | None:
    """Returns the estimated seconds until the end of a sweep, or None before the first finished
    run.

    The estimate is based on the mean duration of finished runs.
    """
    taken = [run.record().get("seconds") for run in runs if states[run.name] is RunState.FINISHED]
    durations = [seconds for seconds in taken if seconds]
    if not durations:
        return None
    remaining = float(sum(states[run.name] is RunState.WAITING for run in runs))
    running = [run for run in runs if states[run.name] is RunState.RUNNING]
    stopped = [run for run in runs if states[run.name] is RunState.STOPPED]
    # Running and stopped runs count by the fraction of their updates that remain.
    for run in running + stopped:
        training = run.latest().get("train", {})
        # remaining work of the run, as a fraction of a run
        remaining += 1 - training.get("update", 0) / max(1, training.get("total", 1))
    return statistics.mean(durations) * remaining / max(1, len(running))
