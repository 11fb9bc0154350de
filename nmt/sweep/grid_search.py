"""Every combination of what is typed, each trained to its end."""

from __future__ import annotations

from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run


class GridSearch(Sweeper):
    """`grids`: strings of overrides; each makes a grid together with what is typed. None: what is typed alone."""

    def __init__(self, *, grids: list[str] | None = None) -> None:
        self.grids = tuple(grids or ())

    def __call__(self, work: Job) -> list[Run]:
        runs = self.planned(work)
        work.train(runs)
        return runs
