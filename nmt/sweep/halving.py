"""Successive halving (Jamieson & Talwalkar 2016; with a factor of 3, as in Li et al. 2020).

All configurations are trained for a few epochs, the best of them for more, and so on. Runs are
resumed bit for bit, never restarted.
"""

from collections.abc import Sequence
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Size
from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run


class Halving(Sweeper):
    """Rung i ends after epochs · factorⁱ epochs; the best 1/factor of its runs go on, at least one.

    When one run is left, or the next rung is longer than the training, the remaining runs are
    trained to their end.

    epochs: length of the first rung
    factor: ratio of the lengths of two rungs
    grids: as in `GridSearch`
    """

    def __init__(
        self, *, epochs: Size = 1, factor: Size = 3, grids: list[str] | None = None
    ) -> None:
        if factor < 2:
            raise ValueError(f"sweep.factor={factor}: every run would go on; give 2 or more")
        self.epochs = epochs
        self.factor = factor
        self.grids = tuple(grids or ())

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
            job.tell(f"{len(remaining)} runs for {epochs} epoch{'s' if epochs > 1 else ''}")
            job.train(remaining, epochs)
            best = self._best(job, remaining, epochs)
            for run in remaining:
                run.note(halted=None if run in best else epochs)
            remaining = best
            epochs *= self.factor
        job.tell(f"to the end: {', '.join(run.name for run in remaining)}")
        job.train(remaining)
        return runs

    def _best(self, job: Job, runs: Sequence[Run], epochs: int) -> list[Run]:
        """Runs that go on. Raises UserError if no run has a score."""
        scores: dict[str, Any] = {run.name: job.score(run, epochs) for run in runs}
        scores = {name: score for name, score in scores.items() if score is not None}
        if not scores:
            raise UserError(
                f"no run has a validation score after {epochs} epochs: see why runs failed, or "
                "lower trainer.validate_every"
            )
        ranked = sorted(scores, key=lambda name: scores[name], reverse=job.greater)
        best = ranked[: max(1, len(runs) // self.factor)]
        return [run for run in runs if run.name in best]
