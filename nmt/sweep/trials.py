"""Hyperparameter search with Optuna (Akiba et al. 2019); every trial is one training run.

The search space consists of the keys with several values or an interval.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.foundation.configurations import digest
from nmt.foundation.errors import UsageError
from nmt.foundation.extras import require
from nmt.foundation.ranges import Count, Size
from nmt.sweep import Job, Sweeper
from nmt.sweep.run_status import Run, RunState

JOURNAL = "optuna.journal"
"""Name of the file with Optuna's study in the sweep folder; optuna-dashboard can open the file."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Trials(Sweeper):
    """Sweeper that chooses runs by a tree-structured Parzen estimator (Bergstra et al. 2011).

    The study is stored in the sweep folder. Interrupted trials are resumed first, and failed trials
    are repeated. If the search
    space or other settings change, a new study begins, because scores are no longer comparable.

    trials: number of runs
    parallel: number of runs that are chosen together and trained at the same time
    seed: seed of the sampler
    """

    counted = False
    trials: Size = 30
    parallel: Size = 1
    seed: Count = 1

    def planned(self, job: Job) -> list[Run]:
        return []

    def __call__(self, job: Job) -> list[Run]:
        require("optuna")
        space = job.spaces()
        if not space:
            raise UsageError(
                "sweep=optuna: the search space is empty. Give several values or an interval, "
                "such as optimizer.lr=interval(0.0005,0.01)"
            )
        study = self._study(job, space)
        # Resume interrupted trials first.
        interrupted = [trial for trial in study.trials if not trial.state.is_finished()]
        while interrupted or len(study.trials) < self.trials:
            count = min(self.parallel, self.trials - len(study.trials))
            study.sampler = self._sampler(len(study.trials))
            trials = interrupted or [study.ask(space) for _ in range(count)]
            interrupted = []
            runs = [job.trial(trial.params) for trial in trials]
            job.train(list(dict.fromkeys(runs)))  # trials with equal parameters are one run
            for trial, run in zip(trials, runs, strict=True):
                _tell(study, job, trial.number, run)
        finished = sum(trial.value is not None for trial in study.trials)
        if finished:
            best = ", ".join(f"{key}={value}" for key, value in study.best_params.items())
            log.info(
                "optuna: best of %s trials: %s (validation score %.2f)",
                finished,
                best,
                study.best_value,
            )
        all_runs = [job.trial(trial.params) for trial in study.trials]
        return list({run.name: run for run in all_runs}.values())

    def _study(self, job: Job, space: Mapping[str, Any]) -> Any:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna.create_study(
            study_name=digest([job.fixed_settings, {key: repr(space[key]) for key in space}]),
            storage=JournalStorage(JournalFileBackend(str(job.folder / JOURNAL))),
            direction="maximize" if job.greater else "minimize",
            load_if_exists=True,
        )

    def _sampler(self, number: int) -> Any:
        """Returns the sampler of the trial with the given number and of the trials chosen with it.

        The seed depends on the number, so a continued study chooses the same trials as an
        uninterrupted one.
        """
        from optuna.samplers import TPESampler

        seed = (1000 * self.seed + number) % 2**32
        return TPESampler(seed=seed, constant_liar=self.parallel > 1)


def _tell(study: Any, job: Job, number: int, run: Run) -> None:
    """Records the score of a trial in the study. A trial that failed or was interrupted stays open,
    so the next command trains it again."""
    score = job.score(run)
    if run.state is RunState.FINISHED and score is not None:
        study.tell(number, score)
