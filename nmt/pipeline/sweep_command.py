"""Sweeps: from what was typed with -m to runs in folders, which are trained, and to what is said about them at the end."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.analysis.report_folders import report_folders
from nmt.configuration import build
from nmt.configuration.compose import (
    CONF,
    choices_of,
    compose,
    compose_unresolved,
    options,
    parse,
    resolve,
    variants,
)
from nmt.configuration.configure import configure
from nmt.configuration.faults import ConfigError, ConfigErrors, shown
from nmt.configuration.one_after_another import errors_of, refuse_common_errors
from nmt.foundation.errors import UserError
from nmt.foundation.progress import waiting
from nmt.metric import LOWER_IS_BETTER
from nmt.pipeline import launchers as launching
from nmt.pipeline.assembly import fingerprints
from nmt.pipeline.fingerprint import hash_of_files
from nmt.storage.lock import Lock
from nmt.sweep import watch
from nmt.sweep.names import differing, name_of, usual_parts
from nmt.sweep.run_status import Run, RunState, find
from nmt.sweep.trials import Space
from nmt.sweep.watch import how_far, overall, scored, time_left

log = logging.getLogger(__name__)
VOLATILE = ("run_dir", "resume", "device", "sweep", "tracker", "keep_validations")
"""Keys that do not change what is learnt,"""
VOLATILE_IN_TRAINER = ("stop_after", "save_every", "log_every", "keep")
"""and those of the trainer."""
PATIENCE = 60
"""Seconds in which a run of a sweep that was killed has to end."""


def sweep(
    command: str, overrides: Sequence[str], of_hydra: Sequence[str], *, dry: bool = False
) -> None:
    """Trains all combinations of what was typed, each as a run in its own folder.

    command: name of a command that trains
    overrides: its command line, with several values for some keys
    of_hydra: settings of Hydra's own, such as hydra/launcher=workers
    dry: only lists the runs

    Raises UserError for what is wrong with all of them, before anything is done; SystemExit if
    some fail.
    """
    work = TrainingJob(command, overrides, of_hydra)
    if dry:
        print("\n".join(work.listed(work.way.planned(work))))
        return
    notes = work.folder / launching.NOTES
    notes.mkdir(parents=True, exist_ok=True)
    with Lock(notes / "lock", f"run_dir={work.folder}"):
        try:
            work.conclude(work.way(work))
        except KeyboardInterrupt:
            log.warning(
                "stopped: the command of the sweep, typed again, goes on with this run and all others"
            )
            raise


class TrainingJob:
    """A sweep of a command that trains (see `nmt.sweep.Job`). `given`: what was typed; `of_hydra`: settings of Hydra."""

    def __init__(self, command: str, given: Sequence[str], of_hydra: Sequence[str]) -> None:
        launching.check(of_hydra, options("hydra/launcher"))
        self.command, self.of_hydra = command, list(of_hydra)
        parsed, found = parse(given)
        if found:
            raise ConfigErrors(found)
        self._typed = dict(zip(given, parsed, strict=True))
        self._one = [
            _first(one) if one.is_sweep_override() else text for text, one in self._typed.items()
        ]
        self._config = resolve(compose_unresolved(command, self._one))
        self.way: Any = self._way()
        self._prints: dict[str, Mapping[str, str]] = {}
        self._known: dict[str, Run] = {}
        trials = self.grid(self.way.grids) if self.way.counted else [self._of_a_run(self._one)]
        refuse_common_errors(command, trials)
        possible = [one for one in trials if not errors_of(command, one)]
        if not possible:  # each for a reason of its own
            raise ConfigErrors(errors_of(command, trials[0]))
        prints = self._fingerprints(configure(command, possible[0]).values)
        self.folder = Path(self._config.get("run_dir") or self._usual_folder(prints))
        self._known |= {run.key: run for run in find(self.folder)}

    def _way(self) -> Any:
        node = self._config.get("sweep")
        if not node:
            raise ConfigErrors(
                [ConfigError("sweep", "says how to sweep", "null", tuple(options("sweep")))]
            )
        found = build.faults_of("sweep", node) or build.faults_of_building("sweep", node)
        if found:
            raise ConfigErrors(found)
        return build.make(self._config, "sweep")

    def _usual_folder(self, prints: Mapping[str, str]) -> str:
        """Always the same one for the same kind of sweep, recipe and data."""
        choices = choices_of(self.command, self._one)
        recipe = choices.get("experiment") or choices.get("data")
        return f"runs/{choices.get('sweep')}-{recipe}-{_digest(prints)[:6]}"

    # What a way of sweeping asks for

    @property
    def metric(self) -> str:
        """The score that chooses the best checkpoint, and the best run."""
        return str(
            self._config["choose_by"]
            if "choose_by" in self._config
            else self._config["metric"]["name"]
        )

    @property
    def greater(self) -> bool:
        return self.metric not in LOWER_IS_BETTER

    def tell(self, text: str) -> None:
        log.info("%s", text)

    def grid(self, grids: Sequence[str]) -> list[list[str]]:
        found = []
        for override in self._typed.values():
            if override.is_interval_sweep():
                why = "an interval is searched by sweep=optuna only; give values, or range(…)"
                raise ConfigErrors([ConfigError(override.key_or_group, why)])
        for grid in grids or [""]:
            found += variants([*str(grid).split(), *self._typed])
        return [self._of_a_run(one) for one in found]

    def spaces(self) -> dict[str, Space]:
        return {
            one.key_or_group: _space(one) for one in self._typed.values() if one.is_sweep_override()
        }

    def fixed(self) -> list[str]:
        return self._of_a_run(
            [text for text, one in self._typed.items() if not one.is_sweep_override()]
        )

    def plan(self, several: Sequence[Sequence[str]], keys: Sequence[str] = ()) -> list[Run]:
        described = [self._described(one) for one in several]
        named_by = list(keys) or differing([values for _, _, values in described])
        found = []
        for one, (key, config, values) in zip(several, described, strict=True):
            if key not in self._known:
                name = name_of(
                    [(k, values.get(k)) for k in named_by] or usual_parts(values, config)
                )
                taken = {run.name for run in self._known.values()}
                name = f"{name}-{key[:6]}" if name in taken else name
                self._known[key] = Run(self.folder / name, key, self.command, tuple(one))
            found.append(self._known[key])
        return list({run.key: run for run in found}.values())

    def train(self, runs: Sequence[Run], epochs: int = 0) -> None:
        wanted = [run for run in runs if not run.reached(epochs)]
        self._wait_for_those_left(wanted)
        busy = [run for run in wanted if run.state is RunState.RUNNING]
        for run in busy:
            log.warning("%s: another process is training it; left alone", run.name)
        for run in runs:
            run.note()
        wanted = [run for run in wanted if run not in busy and not self._hopeless(run)]
        if wanted:
            with watch.watching(runs, self.metric):
                launching.launch(self.folder, wanted, epochs, self.of_hydra, CONF)

    def _hopeless(self, run: Run) -> bool:
        """Whether the configuration of a run has faults, which are kept as those of a run that failed."""
        found = errors_of(self.command, run.overrides)
        if found:
            run.note(failure="; ".join(map(str, found)))
            log.error("%s: %s", run.name, run.record()["failure"])
        return bool(found)

    def _wait_for_those_left(self, runs: Sequence[Run]) -> None:
        """Runs of a sweep that was killed end by themselves (sweep/child.py), but not at once."""
        until = time.monotonic() + PATIENCE
        while any(run.holder() for run in runs) and time.monotonic() < until:
            time.sleep(0.5)

    def score(self, run: Run, epochs: int = 0) -> float | None:
        scores = [
            entry[self.metric]
            for entry in run.validations()
            if self.metric in entry and (not epochs or entry["epoch"] <= epochs)
        ]
        return (
            (max if self.greater else min)(scores)
            if scores and not run.record().get("failure")
            else None
        )

    def horizon(self, run: Run) -> int:
        return int(compose(self.command, run.overrides)["trainer"]["max_epochs"])

    # What is said

    def listed(self, runs: Sequence[Run]) -> list[str]:
        """A line for each run: what is there already. What is left, and how long it will take, comes last."""
        states = {run.name: run.state for run in runs}
        width = max((len(run.name) for run in runs), default=0)
        lines = [
            f"{self.folder}: {overall(runs, states) if self.way.counted else 'trials are chosen as they come'}"
        ]
        for run in runs:
            state, said = states[run.name], how_far(run, self.metric) if run.latest() else ""
            if state is RunState.FINISHED:
                said = scored(run, self.metric)
            elif state is RunState.FAILED:
                said = str(run.record()["failure"])
            lines.append(f"  {run.name:<{width}}  {state.value}{': ' if said else ''}{said}")
        seconds = time_left(runs, states)
        if (
            runs
            and seconds is None
            and any(state is not RunState.FINISHED for state in states.values())
        ):
            lines.append("how long it will take is known when one run has finished")
        return lines

    def conclude(self, runs: Sequence[Run]) -> None:
        """Says how it went. Raises SystemExit if runs failed, or did not end."""
        states = {run.name: run.state for run in runs}
        log.info("%s: %s", self.folder, overall(runs, states))
        if RunState.FINISHED in states.values():
            report_folders([str(self.folder)], different_data=True, trials=0)
        failed = [run for run in runs if states[run.name] is RunState.FAILED]
        for run in failed:
            log.error("%s failed: %s", run.name, run.record().get("failure"))
        if failed:
            log.error("the same command tries %s again", "them" if len(failed) > 1 else "it")
        if any(state not in (RunState.FINISHED, RunState.HALTED) for state in states.values()):
            raise SystemExit(1)

    # How runs are told apart

    def _of_a_run(self, overrides: Sequence[str]) -> list[str]:
        """What of the sweep's overrides is for its runs."""
        others = [
            text for text in overrides if not re.match(r"[+~]*(run_dir|sweep(\..*)?)(=|$)", text)
        ]
        return [*others, "sweep=grid"]

    def _described(self, overrides: Sequence[str]) -> tuple[str, Mapping[str, Any], dict[str, str]]:
        """The key of a run, its configuration, and the values of all keys that its overrides name."""
        typed = {text.partition("=")[0].lstrip("+~"): text.partition("=")[2] for text in overrides}
        typed.pop("sweep", None)
        try:
            config, choices = compose(self.command, overrides), choices_of(self.command, overrides)
        except ConfigErrors:  # the run will fail and say why
            return _digest([self.command, *overrides]), {}, typed
        values = {key: choices[key] if key in choices else shown(_at(config, key)) for key in typed}
        learnt = {key: value for key, value in config.items() if key not in VOLATILE}
        learnt["trainer"] = {
            key: value for key, value in config["trainer"].items() if key not in VOLATILE_IN_TRAINER
        }
        try:
            data: Any = self._fingerprints(config)
        except UserError as error:
            data = str(error)
        files = {key: hash_of_files(config[key]) for key in ("init", "vectors") if config.get(key)}
        return _digest([self.command, learnt, data, files]), {**config, **choices}, values

    def _fingerprints(self, config: Mapping[str, Any]) -> Mapping[str, str]:
        key = json.dumps(config["data"], sort_keys=True, default=str)
        if key not in self._prints:
            with waiting("reading the data"):
                self._prints[key] = fingerprints(self.command, config)
        return self._prints[key]


def _first(override: Any) -> str:
    """One of the values that an override stands for."""
    value = override.value()
    first = value.start if hasattr(value, "end") else next(iter(override.sweep_string_iterator()))
    return f"{override.get_key_element()}={first}"


def _space(override: Any) -> Space:
    """What an override with several values, or an interval, is to a search: choice(a,b), range(1,9,step=2), interval(0.1,1),
    each also as int(…) or tag(log,…)."""
    value = override.value()
    log = "log" in getattr(value, "tags", ())
    if override.is_interval_sweep():
        return Space(low=value.start, high=value.end, log=log)
    if override.is_range_sweep() and not value.shuffle:
        return Space(low=value.start, high=list(value.range())[-1], step=value.step)
    plain = bool | int | float | str | None
    return Space(
        choices=tuple(v if isinstance(v, plain) else str(v) for v in override.sweep_iterator())
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _at(config: Mapping[str, Any], key: str) -> Any:
    node: Any = config
    for part in key.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
