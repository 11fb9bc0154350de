"""Grid search: trains every combination of the values on the command line to the end."""

from dataclasses import dataclass

from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run


@dataclass(frozen=True, kw_only=True)
class GridSearch(Sweeper):
    """Sweeper that trains all combinations of the values on the command line.

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
