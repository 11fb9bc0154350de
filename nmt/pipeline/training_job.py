"""Training sweep of a command line: its search space, its runs, their identities and scores."""

import itertools
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from nmt import components
from nmt.configuration.check import faults_of, faults_of_building, raised_errors
from nmt.configuration.compose import choices_of, compose
from nmt.configuration.configure import configure
from nmt.configuration.overrides import parse, swept, values_of
from nmt.configuration.yaml_files import added_folders, options
from nmt.foundation import plugins
from nmt.foundation.configurations import NOT_LEARNT, NOT_LEARNT_BY_TRAINER, digest
from nmt.foundation.errors import first_line, quoted
from nmt.foundation.part_limits import ConfigError, ConfigErrors, broken, refuse
from nmt.foundation.progress import repeating
from nmt.metric import LOWER_IS_BETTER
from nmt.pipeline import launchers
from nmt.pipeline.assembly.run_parts import trackers_of
from nmt.pipeline.one_after_another import first_valid, variants
from nmt.pipeline.run_identity import RunIdentities
from nmt.storage.files import LOCK
from nmt.storage.lock import Holder
from nmt.sweep.names import differing, name_of
from nmt.sweep.run_status import Run, RunState, find
from nmt.sweep.watch import SweepProgress
from nmt.training.run_directory import RECORD as RUN_RECORD
from nmt.training.trainer import Trainer

log = logging.getLogger(__name__)
OF_THE_SWEEP = re.compile(r"[+~]*(run_dir|sweep(\..*)?)(=|$)")
"""Regular expression for overrides that control the sweep itself and are not passed to its runs."""
GRID_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
"""Regular expression for an override in a grid of sweep.grids; quotes may contain spaces."""
MOST_CHECKED = 1000
"""Maximum number of combinations of a search space that are checked for a valid one."""
DISPLAY_SECONDS = 1.0
"""Seconds between two updates of the progress display, each of which reads the run folders."""
END_SECONDS = 60
"""Seconds within which the runs of a killed sweep must save their state and stop."""


class TrainingJob:
    """Training sweep, which implements `nmt.sweep.Job`.

    command: name of a training command
    overrides: command-line overrides, with several values for some keys
    of_hydra: Hydra settings

    Raises ConfigErrors if all runs are invalid.
    """

    def __init__(self, command: str, overrides: Sequence[str], of_hydra: Sequence[str]) -> None:
        launchers.check(of_hydra, options("hydra/launcher"))
        parsed, errors = parse(overrides)
        refuse(errors)
        refuse(_unsuitable(parsed))
        self.command = command
        self.of_hydra = list(of_hydra)
        self._typed = dict(zip(overrides, parsed, strict=True))
        alternatives = [
            _values(override) if override.is_sweep_override() else [text]
            for text, override in self._typed.items()
        ]
        first = [values[0] for values in alternatives]
        self._config = compose(command, first)
        self.sweeper: Any = self._sweeper()
        self._identities = RunIdentities(command)
        if self.sweeper.counted:
            trials = self.grid(self.sweeper.grids)
        else:
            combinations = itertools.product(*alternatives)
            trials = [_of_a_run(c) for c in itertools.islice(combinations, MOST_CHECKED)]
        # A single valid combination is enough to read the data and to name the folder. Its settings
        # contain the metric, which a grid may choose.
        self._first_values = first_valid(command, trials).values
        trackers_of(self._first_values)  # raises UserError before the data is read
        data_hashes = self._identities.fingerprints(self._first_values)
        # The grids of a sweep may choose the recipe.
        choices = choices_of(command, trials[0])
        recipe = choices.get("experiment") or choices.get("data")
        name = choices_of(command, first).get("sweep")
        usual_folder = f"runs/{name}-{recipe}-{digest(data_hashes)[:6]}"
        self.folder = Path(self._config.get("run_dir") or usual_folder)
        # runs from earlier command lines in the same sweep folder
        self._known = {run.key: run for run in find(self.folder)}

    def _sweeper(self) -> Any:
        node = self._config.get("sweep")
        if not node:
            choices = tuple(options("sweep"))
            raise ConfigErrors(
                [
                    ConfigError(
                        "sweep", "-m needs a sweep method, such as sweep=grid", "null", choices
                    )
                ]
            )
        refuse(faults_of("sweep", node) or faults_of_building("sweep", node))
        return components.make(self._config, "sweep")

    @property
    def metric(self) -> str:
        """Name of the metric that selects the best checkpoint and the best run."""
        return str(
            self._first_values.get("choose_by")
            or components.make(self._first_values, "metric").name
        )

    @property
    def greater(self) -> bool:
        if self._first_values.get("choose_by"):
            return self.metric not in LOWER_IS_BETTER
        return not components.make(self._first_values, "metric").lower_is_better

    def grid(self, grids: Sequence[str] | None) -> list[list[str]]:
        return [
            _of_a_run(combination)
            for grid in grids or [""]
            for combination in variants([*self._varied(str(grid)), *self._typed])
        ]

    def _varied(self, grid: str) -> list[str]:
        """Returns the overrides of a grid that the command line does not replace."""
        typed = {override.key_or_group for override in self._typed.values()}
        overrides = GRID_WORD.findall(grid)
        keys = {text.partition("=")[0] for text in overrides}
        # The keys of a replaced choice, such as window.distance, are replaced with it.
        replaced = [
            text
            for text in overrides
            if text.partition("=")[0] in typed or text.partition(".")[0] in typed & keys
        ]
        for text in replaced:
            log.warning("sweep.grids: the command line replaces %s", text)
        return [text for text in overrides if text not in replaced]

    @property
    def fixed_settings(self) -> str:
        key, _ = self._identities.of(self._fixed())
        return digest([key, self.metric, self.greater])

    def _fixed(self) -> list[str]:
        """Returns the overrides with a single value."""
        return _of_a_run(
            [text for text, override in self._typed.items() if not override.is_sweep_override()]
        )

    def spaces(self) -> dict[str, Any]:
        spaces = {}
        for override in self._typed.values():
            if not override.is_sweep_override():
                continue
            key = override.key_or_group
            try:
                spaces[key] = distribution(override)
            except ValueError as error:
                refuse([ConfigError(key, f"not a search space ({first_line(error)})")])
        return spaces

    def plan(self, combinations: Sequence[Sequence[str]], keys: Sequence[str] = ()) -> list[Run]:
        """Returns a run for each list of overrides; earlier runs are reused.

        combinations: one list of overrides per run
        keys: keys in the names of new runs; by default the keys whose values differ
        """
        described = [self._identities.of(overrides) for overrides in combinations]
        named_by = list(keys) or differing([values for _, values in described])
        runs: dict[str, Run] = {}
        for overrides, (key, values) in zip(combinations, described, strict=True):
            if key in runs:
                continue
            earlier = self._known.get(key)
            if earlier is not None and (earlier.begun or earlier.finished):
                self._warn_of_idle_overrides(earlier, overrides)
                runs[key] = earlier
                continue
            name = name_of({name: values[name] for name in named_by if name in values})
            folder = self._folder(name, key) if earlier is None else earlier.folder
            runs[key] = self._known[key] = Run(
                folder=folder,
                key=key,
                command=self.command,
                overrides=tuple(overrides),
                config_dirs=tuple(added_folders),
                plugins=plugins.named(),
            )
        if len(runs) < len(combinations):
            log.warning(
                "%s combinations of values are only %s different runs, because some settings, such "
                "as threads, do not change a run",
                f"{len(combinations):,}",
                f"{len(runs):,}",
            )
        return list(runs.values())

    def _folder(self, name: str, key: str) -> Path:
        """Returns the folder of a new run."""
        # Runs may differ in a key that is not part of the name, and the folder may contain a run
        # that is not of the sweep.
        is_known = name in {run.name for run in self._known.values()}
        if is_known or (self.folder / name / RUN_RECORD).exists():
            name = f"{name}-{key[:6]}"
        return self.folder / name

    def trial(self, values: Mapping[str, Any]) -> Run:
        overrides = [f"{key}={'null' if value is None else value}" for key, value in values.items()]
        [run] = self.plan([[*self._fixed(), *overrides]], tuple(values))
        return run

    def _warn_of_idle_overrides(self, run: Run, overrides: Sequence[str]) -> None:
        """Logs a warning if an override was added after a run had begun and has no effect on it."""
        idle = (*NOT_LEARNT, *(f"trainer.{key}" for key in NOT_LEARNT_BY_TRAINER))
        for text in set(overrides) - set(run.overrides):
            key = text.partition("=")[0].lstrip("+~")
            is_idle = key in idle or key.partition(".")[0] in idle
            if is_idle and not OF_THE_SWEEP.match(text):
                log.warning(
                    "%s: has no effect on the run %s, which was started without this setting; "
                    "remove its run folder to train the run again",
                    text,
                    run.name,
                )

    def drop_all_but(self, planned: Sequence[Run]) -> None:
        """Marks every run of the sweep folder except the planned runs as dropped; removes this mark
        from the planned runs.

        planned: runs of the current command line
        """
        keys = {run.key for run in planned}
        for run in self._known.values():
            dropped = run.key not in keys
            if run.folder.is_dir() and bool(run.record().get("dropped")) != dropped:
                run.note(dropped=dropped)

    def train(self, runs: Sequence[Run], epochs: int = 0) -> None:
        unfinished = [run for run in runs if not run.reached(epochs)]
        # Waits while the runs of a killed sweep save their state and stop.
        until = time.monotonic() + END_SECONDS
        while any(run.holder() for run in unfinished) and time.monotonic() < until:
            time.sleep(0.5)
        running = [run for run in unfinished if run.state is RunState.RUNNING]
        for run in running:
            log.warning(
                "run %s: skipped, because %s is training this run. If this process has ended, "
                "delete %s",
                run.name,
                Holder.read(run.folder / LOCK) or "another process",
                run.folder / LOCK,
            )
        for run in runs:
            run.note()
        ready = [run for run in unfinished if run not in running and self._can_begin(run)]
        if ready:
            progress = SweepProgress(runs, self.metric)
            with closing(progress), repeating(DISPLAY_SECONDS, progress.update):
                launchers.launch(self.folder, ready, epochs, self.of_hydra)

    def problem(self, run: Run) -> str:
        """Returns the errors in the configuration of a run; empty for a valid configuration."""
        return "; ".join(map(str, raised_errors(configure, self.command, run.overrides)))

    def _can_begin(self, run: Run) -> bool:
        """Returns whether the configuration of a run is valid; records the errors of an invalid
        configuration.
        """
        failure = self.problem(run)
        if failure:
            run.note(failure=failure)
            log.error("%s: %s", run.name, failure)
        return not failure

    def score(self, run: Run, epochs: int = 0) -> float | None:
        # A process may be killed after its run is finished.
        if run.record().get("failure") and not run.finished:
            return None
        scores = [
            entry[self.metric]
            for entry in run.validations()
            if self.metric in entry and (not epochs or entry["epoch"] <= epochs)
        ]
        best = max if self.greater else min
        return best(scores, default=None)

    def horizon(self, run: Run) -> int:
        try:
            trainer = compose(self.command, run.overrides)["trainer"]
            return int(trainer.get("max_epochs", Trainer.max_epochs))
        except (ConfigErrors, ValueError, TypeError):
            return 0


def _unsuitable(overrides: Sequence[Any]) -> Iterator[ConfigError]:
    """Yields an error for each override that a sweep does not support."""
    for override in overrides:
        key = override.key_or_group
        has_values = OF_THE_SWEEP.match(f"{key}=") and override.is_sweep_override()
        yield from broken(
            (key == "resume", key, "a sweep resumes its own runs; leave resume out"),
            (has_values, key, "a sweep has a single value of this key; give one value"),
        )


def _of_a_run(overrides: Sequence[str]) -> list[str]:
    """Returns the overrides of a sweep's command line that apply to the runs themselves."""
    return [*(text for text in overrides if not OF_THE_SWEEP.match(text)), "sweep=grid"]


def _values(override: Any) -> list[str]:
    """Returns an override with each of its values, or with the first value of an interval."""
    interval = override.value() if override.is_interval_sweep() else None
    values = values_of(override) if interval is None else [interval.start]
    return [f"{override.get_key_element()}={value}" for value in values]


def distribution(override: Any) -> Any:
    """Converts a sweep override to an Optuna distribution.

    Supported functions are choice(a,b), range(1,9,step=2) and interval(0.1,1), also within int(…)
    or tag(log,…).
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    value = override.value()
    is_range = override.is_range_sweep() and not value.shuffle
    if not is_range and not override.is_interval_sweep():
        plain = bool | int | float | None
        choices = [
            quoted(choice)
            if isinstance(choice, str)
            else (choice if isinstance(choice, plain) else text)
            for choice, text in swept(override)
        ]
        if getattr(value, "shuffle", False):  # a random order would begin a new study
            choices.sort(key=repr)
        return CategoricalDistribution(choices)
    low = value.start
    step = value.step if is_range else None
    high = list(value.range())[-1] if is_range else value.end
    log_scale = "log" in getattr(value, "tags", ())
    if isinstance(low, int) and isinstance(high, int):
        return IntDistribution(low, high, log=log_scale, step=int(step or 1))
    # A sum of steps such as 0.7999999999999999 would be rounded down by a whole step.
    return FloatDistribution(low, float(f"{high:.12g}"), log=log_scale, step=step)
