"""A search over ranges, by Optuna (Akiba et al. 2019): what was typed with several values or with an interval is the space,
and every trial is a run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranges import Count, Size
from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run, RunState

JOURNAL = "optuna.journal"
"""What optuna-dashboard opens."""


class Trials(Sweeper):
    """trials: how many runs; parallel: how many of them are chosen, and given to the launcher, together; seed: of the
    sampler, a tree-structured Parzen estimator (Bergstra et al. 2011).

    The study is kept in a journal in the sweep's folder. Trials that were interrupted go on first.
    """

    counted = False

    def __init__(self, *, trials: Size = 30, parallel: Size = 1, seed: Count = 1) -> None:
        self.trials, self.parallel, self.seed = trials, parallel, seed

    def planned(self, work: Job) -> list[Run]:
        return []

    def __call__(self, work: Job) -> list[Run]:
        study = self._study(work)
        space = {key: value.distribution() for key, value in work.spaces().items()}
        if not space:
            raise UserError(
                "sweep=optuna: nothing to search for. Give values or ranges: optimizer.lr=interval(0.0005,0.01)"
            )
        runs: dict[int, Run] = {}
        for trial in study.trials:
            [runs[trial.number]] = work.plan([self._overrides(work, trial.params)], tuple(space))
        going_on = [trial for trial in study.trials if not trial.state.is_finished()]
        while going_on or len(study.trials) < self.trials:
            if not going_on:
                count = min(self.parallel, self.trials - len(study.trials))
                going_on = [study.ask(space) for _ in range(count)]
            for trial in going_on:
                [runs[trial.number]] = work.plan(
                    [self._overrides(work, trial.params)], tuple(space)
                )
            work.train([runs[trial.number] for trial in going_on])
            for trial in going_on:
                self._tell(study, work, trial.number, runs[trial.number])
            going_on = []
        done = [trial for trial in study.trials if trial.value is not None]
        if done:
            found = ", ".join(f"{key}={value}" for key, value in study.best_params.items())
            work.tell(f"best of {len(done)} trials: {found} ({study.best_value:.2f} on validation)")
        return [runs[number] for number in sorted(runs)]

    def _study(self, work: Job) -> Any:
        if not installed("optuna"):
            raise UserError(advice("optuna"))
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        logging.getLogger("optuna").setLevel(logging.WARNING)
        return optuna.create_study(
            study_name=work.folder.name,
            storage=JournalStorage(JournalFileBackend(str(work.folder / JOURNAL))),
            direction="maximize" if work.greater else "minimize",
            sampler=optuna.samplers.TPESampler(seed=self.seed, constant_liar=self.parallel > 1),
            load_if_exists=True,
        )

    @staticmethod
    def _overrides(work: Job, values: Mapping[str, Any]) -> list[str]:
        return [*work.fixed(), *(f"{key}={value}" for key, value in values.items())]

    @staticmethod
    def _tell(study: Any, work: Job, number: int, run: Run) -> None:
        """The outcome of a trial. One that was interrupted, not failed, stays open."""
        from optuna.trial import TrialState

        score = work.score(run)
        if run.state is RunState.FINISHED and score is not None:
            study.tell(number, score)
        elif run.state is RunState.FAILED:
            study.tell(number, state=TrialState.FAIL)


@dataclass(frozen=True)
class Space:
    """What a key may be: one of some `choices`; or a number from `low` to `high`, in steps if there is one, searched by its
    logarithm if `log`. Numbers are whole if `low` is."""

    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False

    def distribution(self) -> Any:
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        if self.choices:
            return CategoricalDistribution(list(self.choices))
        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)
