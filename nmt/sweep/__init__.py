"""Many trainings as one job that can be stopped, continued and added to.

The state of a sweep is in the folders of its runs.

Read: this file, run_status, names, grid_search, halving, trials, job, child, watch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nmt.sweep.run_status import Run


@runtime_checkable
class Job(Protocol):
    """Runs of one sweep, for its `Sweeper`."""

    folder: Path
    """Folder of the runs."""

    @property
    def greater(self) -> bool:
        """Whether greater validation scores are better."""

    def grid(self, grids: Sequence[str]) -> list[list[str]]:
        """Overrides of every combination of the values on the command line.

        grids: strings of further overrides, each of which makes a grid with them
        """

    def spaces(self) -> Mapping[str, Any]:
        """Keys with several values or an interval, as Optuna's distributions."""

    def fixed(self) -> list[str]:
        """Overrides with one value."""

    def plan(self, combinations: Sequence[Sequence[str]], keys: Sequence[str] = ()) -> list[Run]:
        """A run for each list of overrides: an earlier one, or a new one.

        keys: keys that name new runs; without them, those that differ
        """

    def train(self, runs: Sequence[Run], epochs: int = 0) -> None:
        """Trains runs up to an epoch (0: to their end); those that fail are marked as failed."""

    def score(self, run: Run, epochs: int = 0) -> float | None:
        """Best validation score of a run in its first epochs (0: in all)."""

    def horizon(self, run: Run) -> int:
        """Epochs of a run that nothing stops."""

    def tell(self, text: str) -> None:
        """Logs a message for the user."""


class Sweeper:
    """Order of the runs of a sweep; a subclass is a choice of the group `sweep`."""

    grids: Sequence[str] = ()
    counted = True
    """Whether all runs are known before the first is trained."""

    @property
    def single(self) -> bool:
        """Whether it makes one run of a command line without several values."""
        return False

    def __call__(self, job: Job) -> list[Run]:
        """Trains the runs that are not finished; returns all runs."""
        raise NotImplementedError

    def planned(self, job: Job) -> list[Run]:
        """Runs that are known before the first is trained."""
        return job.plan(job.grid(self.grids))
