"""Results of finished training runs, read from their folders and grouped by configuration."""

import json
import logging
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from nmt.analysis.significance import SignificanceResult
from nmt.data.lines import check_aligned, find_file, read_lines
from nmt.foundation.configurations import class_label, digest, flat, learnt_settings
from nmt.foundation.errors import UserError
from nmt.metric import LOWER_IS_BETTER, Metric
from nmt.storage.files import read_json_object
from nmt.storage.metrics_file import read_metrics
from nmt.storage.upgrade import with_renamed_targets
from nmt.sweep.run_status import RECORD, Run, find

log = logging.getLogger(__name__)
DEPTH = 3
"""Number of folder levels below a given folder that are searched for runs."""
FIRST_COLUMNS = ("system", "decoder", "attention", "window", "normalizer")
"""Configuration keys whose columns come first in the ranking table."""
NULL = "null"
"""Text that stands for the value None of a setting, and for a setting that a run does not have."""
NAMES = {"nmt.model.attention.window.Window": "global"}
"""Maps the path of a class to its short name in tables.

For all other classes, the short name is the name of their module, which is also the name of their
YAML file.
"""


@dataclass(frozen=True)
class RunResult:
    """Results of a finished run.

    folder: run folder
    seed: random seed of the run
    settings: settings by full key, such as `decoder.hidden_size`
    metric: name of the metric that selected the best checkpoint
    part: data set of `scores`, `test` or `validation`
    scores: final scores by metric
    signatures: sacreBLEU signature of each score
    validation: validation metrics of the best checkpoint
    curve: entries of metrics.jsonl
    data: hashes of the training, validation and test data
    seconds: duration of the training in seconds
    updates: number of optimizer updates
    parameters: number of model parameters; None if unknown
    memory: peak memory in megabytes; None if unknown
    lower_is_better: whether a lower score in `metric` is better
    answers: file with another tool's translations; None for the run's own translations
    leaked: number of pairs of the data set `part` that are also training pairs
    typed: values of the command line that started the run, by key
    """

    folder: Path
    seed: int
    settings: Mapping[str, str]
    metric: str
    part: str
    scores: Mapping[str, float]
    signatures: Mapping[str, str]
    validation: Mapping[str, float]
    curve: Sequence[Mapping[str, Any]]
    data: Mapping[str, str]
    seconds: float
    updates: int
    parameters: int | None = None
    memory: float | None = None
    lower_is_better: bool = False
    answers: Path | None = None
    leaked: int = 0
    typed: Mapping[str, str] = field(default_factory=dict)

    @property
    def speed(self) -> float | None:
        """Median training speed in tokens per second, or None without log entries."""
        # Validations have no speed.
        speeds = [entry["speed"] for entry in self.curve if entry.get("speed")]
        return statistics.median(speeds) if speeds else None

    @property
    def minutes(self) -> float:
        """Duration of the training in minutes."""
        return self.seconds / 60

    def lines(self, side: str = "") -> list[str]:
        """Returns the lines of a text file for the data set `part`; [] if the file is missing.

        side: text to return: "" (translations), ".source" or ".reference"
        """
        answers = None if side else self.answers
        file = answers or self.folder / f"{self.part}{side}.txt"
        try:
            return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except OSError:
            return []


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
        """P-values of the significance tests over sentences; empty if untested."""
        return self.over_sentences.probabilities if self.over_sentences else ()

    @property
    def chances(self) -> list[float]:
        """P-values of all significance tests against the best configuration; empty if untested."""
        over_seeds = [] if self.over_seeds is None else [self.over_seeds]
        return [*self.sentence_chances, *over_seeds]

    @property
    def label(self) -> str:
        """Name of the configuration: its distinguishing settings, such as `luong, lr=0.1`.

        A component is written as its name, and any other setting as name=value.
        """
        values = [
            value
            if value != NULL and ("." not in key or key.endswith("._target_"))
            else f"{key.rpartition('.')[2]}={value}"
            for key, value in self.values.items()
            if value
        ]
        return ", ".join(values) or "all"

    def scores(self, metric: str) -> list[float]:
        """Returns the final score of each run, for the given metric."""
        return [run.scores[metric] for run in self.runs if metric in run.scores]

    def best_by_validation(self) -> RunResult:
        """Returns the run of the configuration that has the best validation score."""
        metric = self.runs[0].metric
        # Runs without a validation come last.
        sign = -1 if self.runs[0].lower_is_better else 1
        return max(self.runs, key=lambda run: sign * run.validation.get(metric, -sign * math.inf))


@dataclass(frozen=True)
class CollectedRuns:
    """Runs found in some folders.

    finished: results of finished runs
    swept: finished and unfinished runs of sweeps
    """

    finished: Sequence[RunResult]
    swept: Sequence[Run]


def collect(names: Sequence[str], *, different_data: bool = False) -> CollectedRuns:
    """Finds runs in folders and their subfolders. Logs a warning for each unreadable run.

    names: paths of the folders
    different_data: whether to accept runs with different data

    Raises UserError if no run is found or the runs have different data.
    """
    for name in names:
        if not Path(name).is_dir():
            raise UserError(f"{name}: not a folder; give the folder of a run or a sweep")
    sweeps = dict.fromkeys(record.parent.parent for record in _files(names, f"*/{RECORD}"))
    # Ignore runs that a later command line of the sweep no longer includes.
    swept = [run for folder in sweeps for run in find(folder) if not run.dropped]
    for file in _files(names, "run.json"):
        is_swept = (file.parent / RECORD).is_file()
        if not is_swept and not (file.parent / "results.json").is_file():
            log.warning(
                "%s: the run is left out of the report, because it is not finished; continue the "
                "training with resume=%s",
                file.parent,
                file.parent,
            )
    results = []
    for file in _files(names, "results.json"):
        try:
            results.append(read_result(file.parent))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as e:
            log.warning(
                "%s: the run is left out of the report, because its files cannot be read (%r)",
                file.parent,
                e,
            )
    if not results and not swept:
        raise UserError(
            f"{', '.join(names)}: no finished run found; the folder of a finished run contains "
            "results.json"
        )
    of_data = {json.dumps(result.data, sort_keys=True): result.folder for result in results}
    if len(of_data) > 1 and not different_data:
        differing_folders = " and ".join(map(str, list(of_data.values())[:2]))
        raise UserError(
            f"{differing_folders} were trained or validated on different data, so their scores "
            "cannot be compared. Give runs with the same data, or add different_data=true"
        )
    return CollectedRuns(_with_choices(results), swept)


def _files(names: Sequence[str], pattern: str) -> list[Path]:
    """Returns the files that match a pattern in folders and their subfolders, without duplicates.

    names: paths of the folders
    pattern: glob pattern of the files, relative to a folder
    """
    files = [
        file
        for name in names
        for depth in range(DEPTH + 1)
        for file in sorted(Path(name).glob("*/" * depth + pattern))
    ]
    return list(dict.fromkeys(files))


def _with_choices(results: Sequence[RunResult]) -> list[RunResult]:
    """Replaces the paths of classes outside nmt by the names used on the command line, such as
    `mine`.

    A path is replaced only if all command lines that select the class use the same name.
    """
    choices = {
        (_class_of(result, key), choice)
        for result in results
        for key, choice in result.typed.items()
    }
    counts = Counter(target for target, _ in choices)
    names = {
        target: choice
        for target, choice in choices
        if counts[target] == 1 and not target.startswith("nmt.")
    }
    return [
        replace(
            result,
            settings={
                key: names.get(_class_of(result, key), value)
                for key, value in result.settings.items()
            },
        )
        for result in results
    ]


def _class_of(result: RunResult, key: str) -> str:
    """Returns the class path that a configuration group selects.

    Returns "nmt." if the key is not a group; the prefix marks a value that gets no other name.
    """
    return result.settings.get(f"{key}._target_", "nmt.")


def read_result(folder: Path) -> RunResult:
    """Reads the results of a run from its folder.

    Raises OSError, ValueError, LookupError or TypeError if a file is missing or damaged.
    """
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    config = with_renamed_targets(yaml.safe_load(text))
    scores = results["scores"]
    part = str(results.get("part", "test"))
    metric = str(config.get("choose_by") or config["metric"]["name"])
    commands = read_json_object(folder / "run.json").get("commands") or [[]]
    return RunResult(
        folder=folder,
        seed=int(config.get("seed", 0)),
        # The data hash distinguishes runs whose data files have the same names but other content.
        settings={**flat_settings(config), "data.content": digest(results["data"])[:6]},
        metric=metric,
        part=part,
        scores={name: float(entry["score"]) for name, entry in scores.items()},
        signatures={name: str(entry.get("signature", "")) for name, entry in scores.items()},
        validation={name: float(value) for name, value in results["validation"].items()},
        curve=read_metrics(folder),
        data=dict(results["data"]),
        seconds=float(results["training_seconds"]),
        updates=int(results.get("updates", 0)),
        parameters=results.get("parameters"),
        memory=results.get("peak_memory_mb"),
        lower_is_better=results.get("lower_is_better", metric in LOWER_IS_BETTER),
        leaked=int(results.get("pairs_in_training", {}).get(part, 0)),
        # The first command starts the run; others resume it.
        typed=dict(word.partition("=")[::2] for word in commands[0]),
    )


def result_of_file(file: Path, name: str, runs: Sequence[RunResult], metric: Metric) -> RunResult:
    """Scores another tool's translations of the runs' test set, and returns the result.

    file: file of translations, one per line
    name: name of the tool, for the tables
    runs: results of the training runs
    metric: metric in which the runs are scored

    Raises UserError if the file does not match the test set.
    """
    tested = next((run for run in runs if run.lines(".reference")), None)
    if tested is None:
        raise UserError(
            f"systems={file}: cannot be scored, because no run has a test set with references"
        )
    reference = tested.lines(".reference")
    lines = read_lines(find_file(str(file)))
    check_aligned(tested.folder, len(reference), file, len(lines))
    scores = metric.score(lines, reference)
    # The row copies the settings that all runs share, so that the table omits their columns.
    unequal = differing([run.settings for run in runs])
    common = {key: value for key, value in runs[0].settings.items() if key not in unequal}
    return replace(
        tested,
        settings={"system": name, **common},
        scores={name: result.score for name, result in scores.items()},
        signatures={name: result.signature for name, result in scores.items()},
        validation={},
        curve=(),
        seconds=0.0,
        updates=0,
        parameters=None,
        memory=None,
        leaked=0,
        answers=file,  # the file's lines replace the translations of the run
    )


def flat_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Returns the settings that affect training, by full key and as text, without the seed.

    `decoder: {_target_: nmt.model.decoder.luong.Luong, hidden_size: 9}` becomes decoder=luong,
    decoder._target_=nmt.model.decoder.luong.Luong and decoder.hidden_size=9.
    """
    learnt = learnt_settings(config)
    settings = {key: "none" for key, value in learnt.items() if value == {}}
    for key, value in flat(learnt, null=NULL).items():
        group, option = key.partition(".")[::2]
        if option == "_target_":
            settings[group] = NAMES.get(value) or class_label(value, group)
        settings[key] = str(value).lower() if isinstance(value, bool) else str(value)
    settings.pop("seed", None)  # runs that differ only in the seed are one configuration
    return settings


def is_lower_better(runs: Sequence[RunResult], metric: str) -> bool:
    """Returns whether a lower score of a metric is better.

    runs: finished runs; they record this property if the metric is defined by a plugin
    metric: name of a metric of nmt, or of the metric that selected the checkpoints of the runs
    """
    of_plugin = any(run.metric == metric and run.lower_is_better for run in runs)
    return of_plugin or metric in LOWER_IS_BETTER


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
    # Configurations without a score come last.
    return sorted(
        grouped, key=lambda c: sign * statistics.mean(c.scores(metric) or [sign * math.inf])
    )


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the keys whose values distinguish runs.

    A key of a component, such as decoder.hidden_size, is left out in two cases: the selected class
    (`decoder`) determines its value, or it divides the runs into the same groups as an earlier key.

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
    later = [key for key in columns if key not in FIRST_COLUMNS]
    return [*(key for key in FIRST_COLUMNS if key in columns), *later]
