"""Successive halving (Jamieson & Talwalkar 2016; with a factor of 3, as in Li et al. 2020): all configurations are trained a
little, the best of them longer, and so on. What goes on is resumed, bit for bit, never started over."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Size
from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run


class Halving(Sweeper):
    """Rung i ends after epochs · factorⁱ epochs. There the best 1/factor of the runs go on (at least one); when one is
    left, or the next rung would be longer than the training, those that are left are trained to their end.

    epochs: of the first rung; factor: how many times longer each rung is than the one before; grids: as in `GridSearch`.
    """

    def __init__(
        self, *, epochs: Size = 1, factor: Size = 3, grids: list[str] | None = None
    ) -> None:
        if factor < 2:
            raise ValueError(f"sweep.factor={factor}: every run would go on; give 2 or more")
        self.epochs, self.factor, self.grids = epochs, factor, tuple(grids or ())

    def __call__(self, work: Job) -> list[Run]:
        every = self.planned(work)
        running, epochs = every, self.epochs
        whole = min(work.horizon(run) for run in every)
        if epochs >= whole:
            raise UserError(
                f"sweep.epochs={epochs}: runs end after {whole} epochs, so none would be left out; give less"
            )
        while epochs < whole and len(running) > 1:
            work.tell(f"{len(running)} runs for {epochs} epoch{'s' if epochs > 1 else ''}")
            work.train(running, epochs)
            best = self._best(work, running, epochs)
            for run in running:
                run.note(halted=None if run in best else epochs)
            running, epochs = best, epochs * self.factor
        work.tell(f"to the end: {', '.join(run.name for run in running)}")
        work.train(running)
        return every

    def _best(self, work: Job, runs: Sequence[Run], epochs: int) -> list[Run]:
        """Those that go on. Raises UserError if no run has a score."""
        scores = {run.name: work.score(run, epochs) for run in runs}
        known = {name: score for name, score in scores.items() if score is not None}
        if not known:
            raise UserError(
                f"no run has a validation score after {epochs} epochs: see why runs failed, or lower trainer.validate_every"
            )
        ranked = sorted(known, key=lambda name: known[name], reverse=work.greater)
        kept = ranked[: max(1, len(runs) // self.factor)]
        return [run for run in runs if run.name in kept]
