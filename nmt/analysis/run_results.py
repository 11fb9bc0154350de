"""Results of finished training runs, read from their folders."""

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import yaml

from nmt.data.lines import read_lines
from nmt.foundation.configurations import class_label, digest, flat, learnt_settings
from nmt.metric import LOWER_IS_BETTER, Metric, TokenizeName
from nmt.storage.files import read_json_object
from nmt.storage.metrics_file import read_metrics
from nmt.storage.upgrade import with_renamed_targets

NULL = "null"
"""Text that stands for the value None of a setting, and for a setting that a run does not have."""
NAMES = {"nmt.model.attention.window.Window": "global"}
"""Maps the qualified name of a class to its short name in tables.

The short name of any other class is the name of its module, which is also the name of its YAML
file.
"""


@dataclass(frozen=True)
class RunResult:
    """Results of a finished run.

    folder: run folder
    seed: random seed of the run
    settings: settings by full key, such as `decoder.hidden_size`
    metric: name of the metric that selected the best checkpoint
    part: data set of the scores: "test" or "validation"
    scores: final scores by metric
    signatures: sacreBLEU signature of each score
    validation: validation metrics of the best checkpoint
    curve: entries of metrics.jsonl
    data: hashes of the training, validation and test data
    seconds: duration of the training in seconds
    updates: number of optimizer updates
    parameters: number of model parameters; None if unknown
    memory: peak main memory of the process in megabytes; None if unknown
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

    @property
    def scorer(self) -> Metric:
        """Metric that scores texts in the same way as the run. Its options are read from the
        sacreBLEU signatures of the run's BLEU and chrF scores."""
        signatures = [self.signatures.get(name, "") for name in ("chrf", "bleu")]
        entries = "|".join(signatures).split("|")
        options = dict(entry.split(":", 1) for entry in entries if ":" in entry)
        signed = options.get("tok", "13a")  # sacreBLEU's default
        # The signatures of ja-mecab and ko-mecab also contain the version of the dictionary.
        names = [name for name in get_args(TokenizeName) if f"{signed}-".startswith(f"{name}-")]
        return Metric(
            tokenize=names[0] if names else "13a",
            lowercase=options.get("case") == "lc",
            char_order=int(options.get("nc", Metric.char_order)),
        )

    @property
    def references(self) -> list[list[str]]:
        """Sets of reference translations for the data set `part`; [] without references."""
        sides = itertools.chain([".reference"], map(".reference{}".format, itertools.count(2)))
        return list(itertools.takewhile(bool, map(self.lines, sides)))

    def lines(self, side: str = "") -> list[str]:
        """Returns the lines of a text file for the data set `part`; [] if the file is missing.

        side: text to return: "" (translations), ".source", ".reference", or ".reference2" and
            further sets of references
        """
        answers = None if side else self.answers
        file = answers or self.folder / f"{self.part}{side}.txt"
        return read_lines(file) if file.is_file() else []


def read_result(folder: Path) -> RunResult:
    """Reads the results of a run from its folder.

    Raises OSError, ValueError, LookupError or TypeError if a file is missing or damaged, and
    ValueError for a score that is not a finite number.
    """
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    config = with_renamed_targets(yaml.safe_load((folder / "config.yaml").read_bytes()))
    scores = {name: float(entry["score"]) for name, entry in results["scores"].items()}
    if not all(map(math.isfinite, scores.values())):
        raise ValueError(f"results.json: scores that are not finite numbers: {scores}")
    part = str(results.get("part", "test"))
    metric = str(config.get("choose_by") or config["metric"]["name"])
    record = read_json_object(folder / "run.json")
    commands = record.get("commands") or [[]]
    hashes: Mapping[str, str] = record.get("data") or {}
    data = dict(results["data"])
    # Hashes of files that settings such as init= name; they are settings, not data.
    of_files = {name: value for name, value in hashes.items() if name not in (*data, "test")}
    if part == "test" and "test" in hashes:
        data["test"] = hashes["test"]
    return RunResult(
        folder=folder,
        seed=int(config.get("seed", 0)),
        # The hash distinguishes runs whose files have the same names but other content.
        settings={**flat_settings(config), "data.content": digest([data, of_files])[:6]},
        metric=metric,
        part=part,
        scores=scores,
        signatures={
            name: str(entry.get("signature", "")) for name, entry in results["scores"].items()
        },
        validation={name: float(value) for name, value in results["validation"].items()},
        curve=read_metrics(folder),
        data=data,
        seconds=float(results["training_seconds"]),
        updates=int(results.get("updates", 0)),
        parameters=results.get("parameters"),
        memory=results.get("peak_memory_mb"),
        lower_is_better=results.get("lower_is_better", metric in LOWER_IS_BETTER),
        leaked=int(results.get("pairs_in_training", {}).get(part, 0)),
        # The first command starts the run; others resume it.
        typed=dict(word.partition("=")[::2] for word in commands[0]),
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
    # The scores of further validation sets are named like second/loss.
    return of_plugin or metric.rpartition("/")[2] in LOWER_IS_BETTER
