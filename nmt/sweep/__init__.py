"""Many trainings as one job that can be stopped, continued and extended.

The state of a sweep is in the folders of its runs.

Read: this file, run_status, names, grid_search, halving, trials, job, child, watch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nmt.sweep.run_status import Run


@runtime_checkable
class Job(Protocol):
    """Runs of one sweep, as its `Sweeper` uses them.

    folder: folder of the runs
    """

    folder: Path

    @property
    def greater(self) -> bool:
        """Whether greater validation scores are better."""

    def grid(self, grids: Sequence[str] | None) -> list[list[str]]:
        """Overrides of every combination of the values on the command line.

        grids: strings of further overrides; each makes a grid with the command line
        """

    def spaces(self) -> Mapping[str, Any]:
        """Optuna's distributions of the keys with several values or an interval."""

    def fixed(self) -> list[str]:
        """Overrides with one value."""

    def plan(self, combinations: Sequence[Sequence[str]], keys: Sequence[str] = ()) -> list[Run]:
        """A run for each list of overrides, an earlier run or a new one.

        keys: keys that name new runs; by default those with different values
        """

    def train(self, runs: Sequence[Run], epochs: int = 0) -> None:
        """Trains runs up to an epoch (0: to their end), and records failures."""

    def score(self, run: Run, epochs: int = 0) -> float | None:
        """Best validation score of a run in its first epochs (0: in all)."""

    def horizon(self, run: Run) -> int:
        """Maximal number of epochs of a run."""


class Sweeper:
    """Order of the runs of a sweep. A subclass is a choice of the group `sweep`."""

    grids: Sequence[str] | None = None
    counted = True
    """Whether all runs are known before the first training."""

    @property
    def single(self) -> bool:
        """Whether a command line without several values makes a single run."""
        return False

    def __call__(self, job: Job) -> list[Run]:
        """Trains the runs that are not finished; returns all runs."""
        raise NotImplementedError

    def planned(self, job: Job) -> list[Run]:
        """Runs that are known before the first training."""
        return job.plan(job.grid(self.grids))
