"""Grid search: trains every combination of the values on the command line to the end."""

from dataclasses import dataclass

from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run


@dataclass(frozen=True, kw_only=True)
class GridSearch(Sweeper):
    """Sweep over the grid of all combinations of values.

    grids: strings of overrides; each is combined with the command line to form a grid (None: the
        command line is the only grid)
    """

    grids: list[str] | None = None

    @property
    def single(self) -> bool:
        return not self.grids

    def __call__(self, job: Job) -> list[Run]:
        runs = self.planned(job)
        job.train(runs)
        return runs
