"""Groups of runs that differ only in their seeds."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nmt.analysis.run_results import NULL, RunResult, is_lower_better
from nmt.analysis.significance import SignificanceResult

FIRST_COLUMNS = ("system", "decoder", "attention", "window", "normalizer")
"""Configuration keys whose columns come first in the ranking table."""


@dataclass(frozen=True)
class Configuration:
    """Group of runs that differ only in their seeds.

    values: settings that distinguish the configuration in its ranking
    runs: results of the runs, one per seed
    over_sentences: paired test against the best configuration over test sentences; None if untested
    over_seeds: p-value of the test against the best configuration over seeds; None if untested
    repeats: further runs with the seed of one of `runs`
    """

    values: Mapping[str, str]
    runs: Sequence[RunResult]
    over_sentences: SignificanceResult | None = None
    over_seeds: float | None = None
    repeats: Sequence[RunResult] = ()

    @property
    def sentence_chances(self) -> Sequence[float]:
        """P-values of the significance tests over test sentences; empty if untested."""
        return self.over_sentences.probabilities if self.over_sentences else ()

    @property
    def label(self) -> str:
        """Name of the configuration: its distinguishing settings, such as `luong, lr=0.1`. If
        nothing distinguishes it, the folder of its run, or the parent folder of several runs.

        A component is written as its name, and any other setting as name=value.
        """
        names = [key.rpartition(".")[2] for key in self.values]
        values = [
            value
            if _is_component(key, value)
            else f"{name if names.count(name) == 1 else key}={value}"
            for name, (key, value) in zip(names, self.values.items(), strict=True)
            if value
        ]
        if values:
            return ", ".join(values)
        folder = self.runs[0].folder.resolve()
        # Several runs differ in the seed, which is part of their names.
        return folder.name if len(self.runs) == 1 else folder.parent.name

    def scores(self, metric: str) -> list[float]:
        """Returns the final score of each run, for the given metric."""
        return [run.scores[metric] for run in self.runs if metric in run.scores]

    def best_by_validation(self) -> RunResult:
        """Returns the run of the configuration that has the best validation score."""
        metric = self.runs[0].metric
        # Runs without a validation come last.
        sign = -1 if self.runs[0].lower_is_better else 1
        return max(self.runs, key=lambda run: sign * run.validation.get(metric, -sign * math.inf))


def _is_component(key: str, value: str) -> bool:
    """Returns whether a setting is the choice of a component, such as decoder=luong."""
    is_choice = "." not in key or key.endswith("._target_")
    return is_choice and value[:1].isalpha() and value not in (NULL, "true", "false")


def configurations(runs: Sequence[RunResult], metric: str) -> list[Configuration]:
    """Returns the runs grouped by configuration and data, the best group first."""
    columns = differing([run.settings for run in runs])
    groups: dict[tuple[str, ...], list[RunResult]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        groups.setdefault(tuple(run.settings.get(key, NULL) for key in columns), []).append(run)
    grouped = []
    for group in groups.values():
        first_of_seed = {run.seed: run for run in reversed(group)}
        counted = [run for run in group if run is first_of_seed[run.seed]]
        repeats = [run for run in group if run is not first_of_seed[run.seed]]
        # A key that a choice lacks has an empty cell.
        values = {key: group[0].settings.get(key, "") for key in columns}
        grouped.append(Configuration(values, counted, repeats=repeats))
    sign = 1 if is_lower_better(runs, metric) else -1
    return sorted(grouped, key=lambda c: sign * statistics.mean(c.scores(metric)))


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the keys whose values distinguish runs.

    A key of a component, such as decoder.hidden_size, is left out in two cases. In the first, the
    selected class (`decoder`) determines the value. In the second, the key distinguishes the same
    runs as an earlier key.

    settings: settings of each run, by full key
    """
    keys = dict.fromkeys(key for of_run in settings for key in of_run)
    columns = []
    # Division of the runs by each key: for each run, the index of the first run with its value
    divisions = set()
    for key in keys:
        group = key.partition(".")[0]
        is_option = group != key
        values = [of_run.get(key, NULL) for of_run in settings]
        choices = [of_run.get(group, NULL) for of_run in settings]
        # The choice determines the value of the option.
        follows_choice = len({*zip(choices, values, strict=True)}) == len({*choices}) > 1
        if is_option and follows_choice:
            continue
        division = tuple(values.index(value) for value in values)
        if len({*values}) > 1 and not (is_option and division in divisions):
            columns.append(key)
        divisions.add(division)  # divisions by earlier keys, including keys that are left out
    return list(dict.fromkeys([*(key for key in FIRST_COLUMNS if key in columns), *columns]))
