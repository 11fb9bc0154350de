"""How far a sweep is, read from the folders of its runs: live lines on a terminal, elsewhere lines when things happen."""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nmt.foundation.terminal import console
from nmt.sweep.run_status import Run, RunState

log = logging.getLogger(__name__)
EVERY = 1.0
"""Seconds between two looks."""
QUIET_SECONDS = 60.0
"""Time between two lines where nothing happens, and there is no terminal."""


@contextmanager
def watching(runs: Sequence[Run], metric: str) -> Iterator[None]:
    """Shows how far the runs are until the block ends. `metric`: the validation score that is shown."""
    ended, view = threading.Event(), _View(runs, metric)

    def look() -> None:
        while not ended.wait(EVERY):
            view.look()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        view.close()


class _View:
    def __init__(self, runs: Sequence[Run], metric: str) -> None:
        self.runs, self.metric = list(runs), metric
        self._before = {run.name: run.state for run in runs}
        self._spoken = time.monotonic()
        self._live: Any = None

    def look(self) -> None:
        states = {run.name: run.state for run in self.runs}
        for run in self.runs:
            if states[run.name] is not self._before[run.name]:
                self._changed(run, states)
        self._before = states
        if console.is_terminal:
            self._draw(states)
        elif time.monotonic() - self._spoken > QUIET_SECONDS:
            for run in self.runs:
                if states[run.name] is RunState.RUNNING:
                    log.info("%s: %s", run.name, how_far(run, self.metric))
            self._say(overall(self.runs, states))

    def _changed(self, run: Run, states: dict[str, RunState]) -> None:
        now = states[run.name]
        if now is RunState.FINISHED:
            self._say(
                f"{run.name}: finished, {scored(run, self.metric)}; {overall(self.runs, states)}"
            )
        elif now is RunState.FAILED:
            self._say(
                f"{run.name}: failed: {run.record().get('failure')}; {overall(self.runs, states)}"
            )
        elif now is RunState.RUNNING and not console.is_terminal:
            self._say(f"{run.name}: started")

    def _say(self, text: str) -> None:
        self._spoken = time.monotonic()
        log.info("%s", text)

    def _draw(self, states: dict[str, RunState]) -> None:
        from rich.console import Group
        from rich.live import Live
        from rich.text import Text

        lines = [
            Text(f"{run.name}: {how_far(run, self.metric)}", no_wrap=True, overflow="ellipsis")
            for run in self.runs
            if states[run.name] is RunState.RUNNING
        ]
        lines.append(Text(overall(self.runs, states), style="bold"))
        if self._live is None:
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Group(*lines), refresh=True)

    def close(self) -> None:
        self.look()
        if self._live is not None:
            self._live.stop()


def how_far(run: Run, metric: str) -> str:
    """A run in a line: `epoch 3.2 of 10, loss 2.31, bleu 21.0, 40 s left`."""
    latest = run.latest()
    training, validation = latest.get("train"), latest.get("validation")
    if training is None:
        return "starting"
    share = training["update"] / max(1, training["total"])
    said = f"epoch {training['epoch']:.1f}, update {training['update']:,} of {training['total']:,}"
    said += f", loss {training['loss']:.3f}"
    if validation is not None and metric in validation:
        said += f", validation {metric} {validation[metric]:.2f}"
    before = _seconds(run)
    return (
        f"{said}, at most {duration(before / share * (1 - share))} left"
        if before and share
        else said
    )


def _seconds(run: Run) -> float | None:
    """For how long it has been trained, if this is the first attempt."""
    try:
        record = run.record()
        began = (run.folder / "run.json").stat().st_mtime
    except OSError:
        return None
    return (
        time.time() - began
        if record.get("attempts", 1) == 1 and not record.get("seconds")
        else None
    )


def scored(run: Run, metric: str) -> str:
    """The best validation score of a run."""
    scores = [entry[metric] for entry in run.validations() if entry.get("best") and metric in entry]
    return f"validation {metric} {scores[-1]:.2f}" if scores else "no validation yet"


def overall(runs: Sequence[Run], states: dict[str, RunState]) -> str:
    """The sweep in a line: `3 of 12 done, 2 running, 7 left, about 12 min left`."""
    count = {state: sum(states[run.name] is state for run in runs) for state in RunState}
    left = count[RunState.WAITING] + count[RunState.STOPPED]
    parts = [f"{count[RunState.FINISHED]} of {len(runs)} done"]
    parts += [f"{count[RunState.RUNNING]} running"] if count[RunState.RUNNING] else []
    parts += [f"{count[RunState.FAILED]} failed"] if count[RunState.FAILED] else []
    parts += [f"{count[RunState.HALTED]} left out"] if count[RunState.HALTED] else []
    parts += [f"{left} to do"] if left else []
    seconds = time_left(runs, states)
    return ", ".join(parts) + (f", about {duration(seconds)} left" if seconds else "")


def time_left(runs: Sequence[Run], states: dict[str, RunState]) -> float | None:
    """Seconds, if all runs take as long as those that are finished; None if none is, or nothing is left."""
    took = [run.record().get("seconds") for run in runs if states[run.name] is RunState.FINISHED]
    known = [seconds for seconds in took if seconds]
    if not known:
        return None
    each, left = statistics.mean(known), 0.0
    for run in runs:
        if states[run.name] is RunState.RUNNING:
            training = run.latest().get("train")
            left += each * (
                1 - (training["update"] / max(1, training["total"]) if training else 0.0)
            )
        elif states[run.name] in (RunState.WAITING, RunState.STOPPED):
            left += each
    running = sum(state is RunState.RUNNING for state in states.values())
    return left / max(1, running)


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
