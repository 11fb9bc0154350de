"""Many trainings as one work that can be stopped, gone on with and added to. Everything that a sweep knows is in the folders
of its runs, so whoever reads them sees how far it is.

Read: this file, runs, names, grid, halving, trials, job, child, watch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nmt.sweep.run_status import Run


@runtime_checkable
class Job(Protocol):
    """What a way of sweeping can ask for. `folder`: where the runs are; `better`: whether one validation score is better
    than another; `greater`: whether greater ones are."""

    folder: Path

    @property
    def greater(self) -> bool: ...

    def grid(self, grids: Sequence[str]) -> list[list[str]]:
        """The overrides of every combination of what was typed; with `grids`, strings of more overrides, those of each."""
        ...

    def spaces(self) -> Mapping[str, Any]:
        """What was typed with several values or with an interval, as a `Space` (trials.py) by its key."""
        ...

    def fixed(self) -> list[str]:
        """What was typed with one value."""
        ...

    def plan(self, several: Sequence[Sequence[str]], keys: Sequence[str] = ()) -> list[Run]:
        """A run for each list of overrides: the one that is there already, or a new one. New ones are named by `keys`, or
        by what differs."""
        ...

    def train(self, runs: Sequence[Run], epochs: int = 0) -> None:
        """Trains runs as far as `epochs` (0: to their end). Those that fail are left as failed."""
        ...

    def score(self, run: Run, epochs: int = 0) -> float | None:
        """The best validation score of a run in its first `epochs` (0: in all)."""
        ...

    def horizon(self, run: Run) -> int:
        """Epochs that a run is trained for if nothing stops it."""
        ...

    def tell(self, text: str) -> None:
        """Says something to the user."""
        ...


class Sweeper:
    """How a sweep goes. A subclass is a choice of the group `sweep`."""

    grids: Sequence[str] = ()
    counted = True
    """Whether all runs are known before the first is trained."""

    def __call__(self, work: Job) -> list[Run]:
        """Trains what there is to train; returns all runs."""
        raise NotImplementedError

    def planned(self, work: Job) -> list[Run]:
        """The runs that are known before the first is trained."""
        return work.plan(work.grid(self.grids))
