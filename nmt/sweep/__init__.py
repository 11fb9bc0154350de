"""Sweeps: many training runs as one job that can be stopped, resumed and extended.

The state of a sweep is stored in the folders of its runs.

Modules in reading order: this file, run_status, names, halving, trials, job, child, watch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nmt.sweep.run_status import Run


@runtime_checkable
class Job(Protocol):
    """Interface between a sweep and a `Sweeper`: plans, trains and scores runs.

    folder: folder of the sweep, which contains the folders of its runs
    """

    folder: Path

    @property
    def greater(self) -> bool:
        """Whether a higher validation score is better."""

    @property
    def fixed_settings(self) -> str:
        """Digest of everything that the scores of runs depend on, apart from the varied keys."""

    def grid(self, grids: Sequence[str] | None) -> list[list[str]]:
        """Returns the overrides of every combination of the values on the command line.

        grids: strings of further overrides; each is combined with the command line to form a grid
        """

    def spaces(self) -> Mapping[str, Any]:
        """Returns Optuna's distribution for each key with several values or an interval."""

    def plan(self, combinations: Sequence[Sequence[str]]) -> list[Run]:
        """Returns a run for each list of overrides; earlier runs are reused.

        combinations: one list of overrides per run
        """

    def trial(self, values: Mapping[str, Any]) -> Run:
        """Returns the run with the given values; an earlier run with the same values is reused.

        values: value of each key that the sweep varies, by dotted key
        """

    def train(self, runs: Sequence[Run], epochs: int = 0) -> None:
        """Trains runs up to an epoch and records failures.

        runs: runs to train
        epochs: epoch to stop after; 0 trains to the end
        """

    def score(self, run: Run, epochs: int = 0) -> float | None:
        """Returns the best validation score of a run, or None if there was no validation.

        run: run whose score is returned
        epochs: number of epochs from the beginning to consider; 0 considers all epochs
        """

    def horizon(self, run: Run) -> int:
        """Returns the maximum number of epochs of a run; 0 if its configuration is invalid."""


class Sweeper:
    """Strategy that selects and orders the runs of a sweep; a choice of the group `sweep`."""

    grids: Sequence[str] | None = None
    counted = True
    """Whether the number of runs is fixed before any run is trained."""

    @property
    def single(self) -> bool:
        """True if the sweep itself varies no key, so that it consists of a single run unless a key
        on the command line has several values."""
        return False

    def __call__(self, job: Job) -> list[Run]:
        """Trains the unfinished runs of a sweep and returns all runs."""
        raise NotImplementedError

    def planned(self, job: Job) -> list[Run]:
        """Returns the runs that are planned before any run is trained."""
        return job.plan(job.grid(self.grids))


@dataclass(frozen=True, kw_only=True)
class GridSearch(Sweeper):
    """Grid search: trains a run for each combination of the values on the command line, and ends no
    run early.

    grids: strings of overrides; each is combined with the command line to form a grid. None uses
        the command line alone
    """

    grids: list[str] | None = None

    @property
    def single(self) -> bool:
        return not self.grids

    def __call__(self, job: Job) -> list[Run]:
        runs = self.planned(job)
        job.train(runs)
        return runs
