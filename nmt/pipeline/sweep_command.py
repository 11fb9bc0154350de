"""Sweeps (-m): trains every run of a command line in its own folder, and reports the results."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nmt.analysis.run_report import report_folders
from nmt.pipeline import launchers
from nmt.pipeline.training_job import TrainingJob
from nmt.storage.lock import Lock
from nmt.sweep.run_status import Run, RunState
from nmt.sweep.watch import best_score, overall, progress_of, time_left

log = logging.getLogger(__name__)


def sweep(
    command: str, run: Callable[[Any], Any], overrides: Sequence[str], *, dry: bool = False
) -> None:
    """Trains every combination of the values on a command line, each in its own folder.

    command: name of a training command
    run: ignored, since each run is a separate process
    overrides: command-line overrides, with several values for some keys and optional Hydra settings
        such as hydra/launcher=workers
    dry: whether the runs are only listed

    Raises UserError before any training if all runs are invalid, and SystemExit if some runs fail.
    """
    of_hydra = [text for text in overrides if text.lstrip("+~").startswith("hydra")]
    job = TrainingJob(command, [text for text in overrides if text not in of_hydra], of_hydra)
    if dry:
        runs = job.sweeper.planned(job)
        problems = {run.name: job.problem(run) for run in runs if run.state is RunState.WAITING}
        print("\n".join(listing(job, runs, problems)))
        return
    with Lock(job.folder / launchers.NOTES / "lock", f"run_dir={job.folder}"):
        try:
            if job.sweeper.counted:
                job.drop_all_but(job.sweeper.planned(job))
            conclude(job, job.sweeper(job))
        except KeyboardInterrupt:
            log.warning("sweep stopped; run the same command again to continue the sweep")
            raise


def listing(job: TrainingJob, runs: Sequence[Run], problems: Mapping[str, str]) -> list[str]:
    """Returns the output lines of --dry-run: a summary of the sweep, then each run with its
    state.

    problems: errors in the configuration of each waiting run, by name of the run
    """
    states = {run.name: run.state for run in runs}
    width = max((len(run.name) for run in runs), default=0)
    summary = (
        overall(runs, states)
        if job.sweeper.counted
        else "sweep=optuna chooses each trial from the results of earlier trials"
    )
    lines = [f"{job.folder}: {summary}"]
    for run in runs:
        state = states[run.name]
        details = {
            RunState.WAITING: problems.get(run.name),
            RunState.FINISHED: best_score(run, job.metric),
            RunState.HALTED: best_score(run, job.metric),
            RunState.FAILED: run.record().get("failure"),
        }
        detail = details.get(state, progress_of(run, job.metric))
        lines.append(f"  {run.name:<{width}}  {state.value}{': ' if detail else ''}{detail}")
    unfinished = any(state is not RunState.FINISHED for state in states.values())
    if unfinished and time_left(runs, states) is None:
        lines.append("remaining time: unknown until the first run is finished")
    return lines


def conclude(job: TrainingJob, runs: Sequence[Run]) -> None:
    """Logs the results of a sweep and writes its report.

    Raises SystemExit if a run failed or was interrupted.
    """
    states = {run.name: run.state for run in runs}
    log.info("sweep %s: %s", job.folder, overall(runs, states))
    if RunState.FINISHED in states.values():
        report_folders(folders=[str(job.folder)], different_data=True, trials=0)
    failed = [run for run in runs if states[run.name] is RunState.FAILED]
    for run in failed:
        log.error("run %s failed: %s", run.name, run.record().get("failure"))
    if failed and job.sweeper.counted:
        log.error("sweep: run the same command again to repeat failed runs")
    if any(state not in (RunState.FINISHED, RunState.HALTED) for state in states.values()):
        raise SystemExit(1)
