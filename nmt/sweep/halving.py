"""Successive halving (Jamieson & Talwalkar 2016; with a factor of 3, as in Li et al. 2020).

All configurations are trained for a few epochs, the best of them for more, and so on. Runs are
resumed bit for bit, never restarted.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Size
from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Halving(Sweeper):
    """Rung i ends after epochs · factorⁱ epochs. The best 1/factor of its runs continue, at least
    one.

    When one run is left, or the next rung is longer than the training, the remaining runs are
    trained to their end.

    epochs: length of the first rung
    factor: ratio of the lengths of two rungs
    grids: strings of overrides, as in `GridSearch`
    """

    epochs: Size = 1
    factor: Size = 3
    grids: list[str] | None = None

    def __post_init__(self) -> None:
        if self.factor < 2:
            raise ValueError(
                f"sweep.factor={self.factor}: every run would continue; give 2 or more"
            )

    def __call__(self, job: Job) -> list[Run]:
        runs = self.planned(job)
        remaining = runs
        epochs = self.epochs
        horizon = min(job.horizon(run) for run in runs)
        if epochs >= horizon:
            raise UserError(
                f"sweep.epochs={epochs}: runs end after {horizon} epochs, so none would be left "
                "out; give less"
            )
        while epochs < horizon and len(remaining) > 1:
            log.info("%s runs for %s epoch%s", len(remaining), epochs, "s" if epochs > 1 else "")
            job.train(remaining, epochs)
            best = self._best(job, remaining, epochs)
            # Where a run was left out is recorded, so that it does not count as unfinished.
            for run in remaining:
                run.note(halted=None if run in best else epochs)
            remaining = best
            epochs *= self.factor
        log.info("to the end: %s", ", ".join(run.name for run in remaining))
        job.train(remaining)
        return runs

    def _best(self, job: Job, runs: Sequence[Run], epochs: int) -> list[Run]:
        """Runs that continue. Raises UserError if no run has a score."""
        scores: dict[str, Any] = {run.name: job.score(run, epochs) for run in runs}
        scored = [name for name, score in scores.items() if score is not None]
        if not scored:
            raise UserError(
                f"no run has a validation score after {epochs} epochs: see why runs failed, or "
                "lower trainer.validate_every"
            )
        ranked = sorted(scored, key=lambda name: scores[name], reverse=job.greater)
        best = ranked[: max(1, len(runs) // self.factor)]
        return [run for run in runs if run.name in best]
