"""Successive halving (Jamieson & Talwalkar 2016), by default with a factor of 3 (Li et al. 2020).

All configurations are trained for a few epochs, and the best of them for more epochs, repeatedly.
A run continues bit-identically from its checkpoint and is not restarted.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.ranges import Size
from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run, RunState

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Halving(Sweeper):
    """Sweeper for successive halving of the number of configurations.

    Rung i = 0, 1, … ends after epochs · factorⁱ epochs. The best 1/factor of its runs, but at least
    one run, continue. When one run is left, or the next rung would not be shorter than a full
    training run, the surviving runs are trained to the end.

    epochs: length of the first rung in epochs
    factor: ratio of the lengths of consecutive rungs, at least 2
    grids: strings of overrides; each is combined with the command line to form a grid
    """

    epochs: Size = 1
    factor: Size = 3
    grids: list[str] | None = None

    def __post_init__(self) -> None:
        if self.factor < 2:
            raise ValueError(
                f"sweep.factor={self.factor}: must be at least 2; otherwise no run is stopped early"
            )

    def __call__(self, job: Job) -> list[Run]:
        runs = self.planned(job)
        remaining = runs
        epochs = self.epochs
        horizon = min(filter(None, map(job.horizon, runs)))  # 0 is a run with an invalid setting
        if epochs >= horizon:
            raise UsageError(
                f"sweep.epochs={epochs}: must be less than {horizon}, the number of epochs of "
                "the shortest run; otherwise no run is stopped early"
            )
        while epochs < horizon and len(remaining) > 1:
            log.info(
                "successive halving: training %s runs up to epoch %s, then continuing the best "
                "1/%s of these runs",
                len(remaining),
                epochs,
                self.factor,
            )
            job.train(remaining, epochs)
            stopped = [
                run.name
                for run in remaining
                if not run.reached(epochs) and run.state is not RunState.FAILED
            ]
            if stopped:  # by a signal, or in training by another process
                log.error(
                    "successive halving: %s did not reach epoch %s, so the runs cannot be compared "
                    "yet; run the same command again to continue the sweep",
                    ", ".join(stopped),
                    epochs,
                )
                return runs
            best = self._best(job, remaining, epochs)
            # Record the epoch at which a run is stopped, so that it does not count as unfinished.
            for run in remaining:
                run.note(halted=None if run in best else epochs)
            remaining = best
            epochs *= self.factor
        log.info(
            "successive halving: training %s to the end", ", ".join(run.name for run in remaining)
        )
        job.train(remaining)
        return runs

    def _best(self, job: Job, runs: Sequence[Run], epochs: int) -> list[Run]:
        """Returns the runs that continue after a rung (round) of successive halving. Raises
        UserError if no run has a score."""
        scores: dict[str, Any] = {run.name: job.score(run, epochs) for run in runs}
        scored = [name for name, score in scores.items() if score is not None]
        if not scored:
            raise UserError(
                f"sweep.epochs={epochs}: no run has a validation score after {epochs} epochs; "
                "check the failed runs, or lower trainer.validate_every"
            )
        ranked = sorted(scored, key=lambda name: scores[name], reverse=job.greater)
        best = ranked[: max(1, len(runs) // self.factor)]
        rest = ranked[len(best) :]
        if rest and scores[rest[0]] == scores[best[-1]]:
            log.warning(
                "successive halving: %s and %s have the same validation score after epoch %s, so "
                "the run that comes first continues; raise sweep.epochs",
                best[-1],
                rest[0],
                epochs,
            )
        return [run for run in runs if run.name in best]
