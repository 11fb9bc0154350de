"""Grid search: every combination of the values on the command line, each trained to its end."""

from dataclasses import dataclass

from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run


@dataclass(frozen=True, kw_only=True)
class GridSearch(Sweeper):
    """Trains a grid of runs.

    grids: strings of overrides, each of which makes a grid with the command line; None: the command
        line alone
    """

    grids: list[str] | None = None

    @property
    def single(self) -> bool:
        return not self.grids

    def __call__(self, job: Job) -> list[Run]:
        runs = self.planned(job)
        job.train(runs)
        return runs
