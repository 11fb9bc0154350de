"""Results of finished runs, read from their folders and grouped by configuration."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from nmt.analysis.significance import SignificanceResult
from nmt.data.lines import check_aligned, find_file, read_lines
from nmt.foundation.configurations import digest, flat, learnt_settings
from nmt.foundation.errors import UserError
from nmt.metric import LOWER_IS_BETTER, Metric
from nmt.storage.metrics_file import read_metrics
from nmt.storage.upgrade import with_renamed_targets
from nmt.sweep.run_status import RECORD, Run, find

DEPTH = 3
"""Levels of folders that are searched for runs."""
FIRST_COLUMNS = ("decoder", "attention", "window", "normalizer")
"""Columns at the beginning of a table, if the settings differ there."""
NAMES = {"nmt.model.attention.window.Window": "global"}
"""Names of classes whose configuration file has another name than their module."""


@dataclass(frozen=True)
class RunResult:
    """Results of a finished run.

    folder: run directory
    seed: seed of the run
    settings: configuration by whole keys (see `flat_settings`)
    metric: name of the metric that chose the checkpoint
    part: part of the data of `scores`: test or validation
    scores: final scores by metric
    signatures: signatures of these scores by metric
    validation: metrics of the best checkpoint in its validation
    curve: entries of metrics.jsonl
    data: hashes of the data
    seconds: duration of the training
    updates: number of updates
    parameters: number of parameters of the model; None if unknown
    memory: peak memory in megabytes; None if unknown
    answers: file with the translations of another tool; None: those of the run
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
    answers: Path | None = None

    @property
    def speed(self) -> float | None:
        """Median of the logged tokens per second; None without any."""
        training = [entry for entry in self.curve if entry.get("kind") == "train"]
        speeds = [entry["speed"] for entry in training if entry.get("speed")]
        return statistics.median(speeds) if speeds else None

    def lines(self, side: str = "") -> list[str] | None:
        """Translations of `part`, or with side=".source" or ".reference" these texts.

        Returns None if the file is missing.
        """
        file = self.folder / f"{self.part}{side}.txt"
        if self.answers is not None and not side:
            file = self.answers
        try:
            return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except OSError:
            return None


@dataclass(frozen=True)
class Configuration:
    """Runs that differ in their seeds only.

    values: settings in which configurations differ
    runs: results of the runs
    over_sentences: comparison with the best configuration over test sentences; None if untested
    over_seeds: p-value of the comparison over seeds; None if untested
    """

    values: Mapping[str, str]
    runs: Sequence[RunResult]
    over_sentences: SignificanceResult | None = None
    over_seeds: float | None = None

    @property
    def sentence_chances(self) -> list[float]:
        """The p-values of the tests over sentences that were made."""
        return self.over_sentences.probabilities if self.over_sentences else []

    @property
    def chances(self) -> list[float]:
        """The p-values of all tests that were made."""
        over_seeds = [] if self.over_seeds is None else [self.over_seeds]
        return [*self.sentence_chances, *over_seeds]

    @property
    def label(self) -> str:
        return ", ".join(value for value in self.values.values() if value) or "all"

    def scores(self, metric: str) -> list[float]:
        """Final scores of the runs in a metric."""
        return [run.scores[metric] for run in self.runs if metric in run.scores]

    def best_by_validation(self) -> RunResult:
        """The run with the best validation score."""
        metric = self.runs[0].metric
        # Runs without a validation are the last choice.
        sign = -1 if metric in LOWER_IS_BETTER else 1
        return max(self.runs, key=lambda run: sign * run.validation.get(metric, -sign * math.inf))


@dataclass(frozen=True)
class CollectedRuns:
    """Runs of some folders.

    finished: results of finished runs
    swept: runs of sweeps, finished or not
    problems: messages about unreadable runs
    """

    finished: Sequence[RunResult]
    swept: Sequence[Run]
    problems: Sequence[str]


def collect(names: Sequence[str], *, different_data: bool = False) -> CollectedRuns:
    """Finds runs in folders, or below them.

    names: paths of the folders
    different_data: accepts runs of different data

    Raises UserError if there is no run, or if runs had different data.
    """
    folders = [folder for name in names for folder in _with_subfolders(Path(name))]
    swept: dict[Path, Run] = {}
    results = []
    problems = []
    for folder in dict.fromkeys(folders):
        # Runs that a later command line left out do not count.
        if any(folder.glob(f"*/{RECORD}")):
            swept |= {run.folder: run for run in find(folder) if not run.dropped}
        if not (folder / "results.json").is_file():
            continue
        try:
            results.append(read_result(folder))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError) as e:
            problems.append(f"{folder}: cannot be read ({e!r}); left out")
    if not results and not swept:
        raise UserError(
            f"{', '.join(names)}: no finished run found (a finished run has results.json)"
        )
    of_data = {json.dumps(result.data, sort_keys=True): result.folder for result in results}
    if len(of_data) > 1 and not different_data:
        differing_folders = " and ".join(map(str, list(of_data.values())[:2]))
        raise UserError(
            f"{differing_folders} were trained or validated on different data: their scores "
            "cannot be compared. Name runs of the same data, or add different_data=true"
        )
    return CollectedRuns(results, list(swept.values()), problems)


def _with_subfolders(folder: Path) -> list[Path]:
    if folder.is_file():
        raise UserError(f"{folder}: is a file; give the folder of a run or a sweep")
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    patterns = ["/".join(["*"] * depth) for depth in range(1, DEPTH + 1)]
    below = [path for pattern in patterns for path in sorted(folder.glob(pattern))]
    return [folder, *(path for path in below if path.is_dir())]


def read_result(folder: Path) -> RunResult:
    """Reads the result of a run.

    Raises OSError, ValueError, LookupError or TypeError if a file is damaged.
    """
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    config = with_renamed_targets(yaml.safe_load(text))
    scores = results["scores"]
    return RunResult(
        folder=folder,
        seed=int(config.get("seed", 0)),
        settings=flat_settings(config),
        metric=str(config.get("choose_by") or config["metric"]["name"]),
        part=str(results.get("part", "test")),
        scores={name: float(entry["score"]) for name, entry in scores.items()},
        signatures={name: str(entry.get("signature", "")) for name, entry in scores.items()},
        validation={name: float(value) for name, value in results["validation"].items()},
        curve=read_metrics(folder),
        data=dict(results["data"]),
        seconds=float(results["training_seconds"]),
        updates=int(results.get("updates", 0)),
        parameters=results.get("parameters"),
        memory=results.get("peak_memory_mb"),
    )


def result_of_file(file: Path, runs: Sequence[RunResult], metric: Metric) -> RunResult:
    """The result of another tool, from its translations of the text that runs were tested on.

    file: translations, one a line
    runs: results of runs
    metric: metric of the runs

    Raises UserError if the file does not belong to the text.
    """
    tested = [run for run in runs if run.lines(".reference")]
    if not tested:
        raise UserError(f"systems: no run has the text that {file} would translate")
    reference = tested[0].lines(".reference") or []
    lines = read_lines(find_file(str(file)))
    check_aligned(tested[0].folder, len(reference), file, len(lines))
    scores = metric.score(lines, reference)
    # Settings that all runs have are no reason for a column: the row has them too.
    unequal = differing([run.settings for run in runs])
    common = {key: value for key, value in runs[0].settings.items() if key not in unequal}
    return replace(
        tested[0],
        settings={"system": file.name, **common},
        scores={name: result.score for name, result in scores.items()},
        signatures={name: result.signature for name, result in scores.items()},
        validation={},
        curve=(),
        seconds=0.0,
        updates=0,
        parameters=None,
        memory=None,
        answers=file,
    )


def flat_settings(config: Mapping[str, Any]) -> dict[str, str]:
    """Settings that change what a run learns, by whole keys and as text, without the seed.

    `decoder: {_target_: nmt.model.decoder.luong.Luong, hidden_size: 9}` becomes decoder=luong and
    decoder.hidden_size=9.
    """
    settings = {}
    for key, value in learnt_settings(config).items():
        if not value or not isinstance(value, Mapping):
            settings[key] = _as_text(value)
            continue
        for name, option in flat(value).items():
            if name == "_target_":
                settings[key] = NAMES.get(option, str(option).split(".")[-2])
            else:
                settings[f"{key}.{name}"] = _as_text(option)
    settings.pop("seed", None)  # runs that differ in it are one configuration
    return settings


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if value == {}:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def configurations(runs: Sequence[RunResult], metric: str) -> list[Configuration]:
    """Runs grouped by their configuration and data, the best first."""
    by_seed = sorted(runs, key=lambda run: run.seed)
    # Files may change while their names stay: runs of different text are different configurations.
    settings = [{**run.settings, "data.content": digest(run.data)[:6]} for run in by_seed]
    columns = differing(settings)
    groups: dict[tuple[str, ...], list[RunResult]] = {}
    for run, of_run in zip(by_seed, settings, strict=True):
        groups.setdefault(tuple(of_run.get(key, "") for key in columns), []).append(run)
    grouped = [
        Configuration(dict(zip(columns, values, strict=True)), group)
        for values, group in groups.items()
    ]
    sign = 1 if metric in LOWER_IS_BETTER else -1
    # Configurations without a score are the last.
    return sorted(
        grouped, key=lambda c: sign * statistics.mean(c.scores(metric) or [sign * math.inf])
    )


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys that distinguish runs.

    settings: settings of each run, by whole keys

    An option of a choice (decoder.hidden_size) is left out if it follows from the choice, or if it
    divides the runs as an earlier key does.
    """
    keys = dict.fromkeys(key for of_run in settings for key in of_run)
    columns = []
    # How each key divides the runs: for each run, the first run with the same value.
    divisions = set()
    for key in keys:
        group = key.partition(".")[0]
        is_option = group != key
        values = [of_run.get(key, "") for of_run in settings]
        choices = [of_run.get(group, "") for of_run in settings]
        # Each choice has one value of the option.
        follows_choice = len({*zip(choices, values, strict=True)}) == len({*choices}) > 1
        if is_option and follows_choice:
            continue
        division = tuple(values.index(value) for value in values)
        if len({*values}) > 1 and not (is_option and division in divisions):
            columns.append(key)
        divisions.add(division)
    first = {key: place for place, key in enumerate(FIRST_COLUMNS)}
    return sorted(columns, key=lambda key: first.get(key, len(first)))
