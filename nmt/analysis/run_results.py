"""The runs of a report, read from their folders, and the configurations that they are seeds of."""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nmt.foundation.configurations import learnt_settings
from nmt.foundation.errors import UserError
from nmt.metric import LOWER_IS_BETTER
from nmt.storage.checkpoint import BEST
from nmt.storage.metrics_file import read_metrics
from nmt.storage.upgrade import with_renamed_targets
from nmt.sweep.run_status import RECORD, Run, find

DEPTH = 4
"""Folders below the given one that are looked into."""


@dataclass(frozen=True)
class Finished:
    """A run with results. `settings`: its configuration as one flat mapping, a choice by its name; `scores` of the test
    part, with their signatures; `validation`: those of the best checkpoint; `curve`: figures of training and of
    validations."""

    folder: Path
    seed: int
    settings: Mapping[str, str]
    metric: str
    scores: Mapping[str, float]
    signatures: Mapping[str, str]
    validation: Mapping[str, float]
    curve: Sequence[Mapping[str, Any]]
    data: Mapping[str, str]
    seconds: float
    updates: int
    parameters: int | None = None
    memory: float | None = None

    @property
    def speed(self) -> float | None:
        """Tokens per second, the median of what was logged."""
        found = [
            entry["speed"]
            for entry in self.curve
            if entry.get("kind") == "train" and entry.get("speed")
        ]
        return statistics.median(found) if found else None

    def lines(self, name: str) -> list[str] | None:
        """test.txt, test.source.txt or test.reference.txt."""
        try:
            return (self.folder / name).read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except OSError:
            return None


@dataclass
class Configuration:
    """Runs that differ by their seed alone. `values`: those in which configurations differ, by key."""

    values: Mapping[str, str]
    runs: list[Finished] = field(default_factory=list)

    @property
    def label(self) -> str:
        return ", ".join(value for value in self.values.values() if value) or "all"

    def of(self, metric: str) -> list[float]:
        """A score of the test part, of each run."""
        return [run.scores[metric] for run in self.runs if metric in run.scores]

    def chosen(self) -> Finished:
        """The run that validation would choose."""
        metric, worst = self.runs[0].metric, float("nan")
        sign = -1 if metric in LOWER_IS_BETTER else 1
        return max(self.runs, key=lambda run: sign * run.validation.get(metric, worst))


def collect(
    folders: Sequence[str], *, different_data: bool = False
) -> tuple[list[Finished], list[Run], list[str]]:
    """Finished runs in the folders, themselves or below them; the runs of sweeps, finished or not; and what is wrong with
    runs that cannot be read. Raises UserError if there is no run, or if finished runs saw different data (unless
    `different_data`)."""
    found, wrong, swept = list[Finished](), list[str](), list[Run]()
    for name in folders:
        folder = Path(name)
        if not folder.is_dir():
            what = (
                "is a file; give the folder of a run or a sweep"
                if folder.exists()
                else "there is no such folder"
            )
            raise UserError(f"{name}: {what}")
        below = [
            place
            for depth in range(1, DEPTH)
            for place in sorted(folder.glob("/".join(["*"] * depth)))
        ]
        places = [folder, *(place for place in below if place.is_dir())]
        for place in places:
            if any(place.glob(f"*/{RECORD}")):
                swept += [run for run in find(place) if not run.dropped]
        for place in dict.fromkeys(places):
            if (place / "results.json").is_file():
                try:
                    found.append(read_run(place))
                except (
                    OSError,
                    ValueError,
                    KeyError,
                    TypeError,
                    AttributeError,
                    yaml.YAMLError,
                ) as error:
                    wrong.append(f"{place}: cannot be read ({error!r}); left out")
    if not found and not swept:
        raise UserError(
            f"{', '.join(folders)}: no finished run in it (a run has results.json when it has ended)"
        )
    kinds = {json.dumps(run.data, sort_keys=True): run for run in found}
    if len(kinds) > 1 and not different_data:
        one, other = list(kinds.values())[:2]
        raise UserError(
            f"{one.folder} and {other.folder} were trained or validated on different data: their scores cannot be compared. "
            "Name runs of the same data, or add different_data=true"
        )
    return found, list({run.folder: run for run in swept}.values()), wrong


def read_run(folder: Path) -> Finished:
    """Raises OSError, ValueError, KeyError or TypeError if it is not as a run leaves it."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    config = with_renamed_targets(
        yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    )
    chosen = config.get("choose_by") or config["metric"]["name"]
    return Finished(
        folder,
        int(config.get("seed", 0)),
        flat(config),
        str(chosen),
        {name: float(entry["score"]) for name, entry in results["scores"].items()},
        {name: str(entry.get("signature", "")) for name, entry in results["scores"].items()},
        {name: float(value) for name, value in results["validation"].items()},
        read_metrics(folder),
        dict(results["data"]),
        float(results["training_seconds"]),
        int(results.get("updates", 0)),
        results.get("parameters") or parameters_in(folder / BEST),
        results.get("peak_memory_mb"),
    )


UNUSUAL = {"nmt.model.attention.window.Window": "global"}
"""Choices whose file is not called as they are."""


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """`decoder: {_target_: nmt.model.decoder.luong.Luong, hidden_size: 9}` as decoder=luong, decoder.hidden_size=9."""
    found = {}
    for key, value in learnt_settings(config).items():
        if key == "seed":
            continue
        if not isinstance(value, Mapping):
            found[key] = _shown(value)
            continue
        if "_target_" in value:
            target = str(value["_target_"])
            found[key] = UNUSUAL.get(target, target.split(".")[-2])
        elif not value:
            found[key] = "none"
        for name, inner in value.items():
            if name != "_target_":
                found[f"{key}.{name}"] = _shown(inner)
    return found


def _shown(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def parameters_in(file: Path) -> int | None:
    """How many numbers a checkpoint's model has, from its header alone."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), "numpy") as opened:
            sizes = [
                opened.get_slice(name).get_shape()
                for name in opened.keys()
                if name.startswith("model/")
            ]
    except (OSError, SafetensorError):
        return None
    total = 0
    for shape in sizes:
        size = 1
        for n in shape:
            size *= n
        total += size
    return total


def configurations(runs: Sequence[Finished], metric: str) -> list[Configuration]:
    """Runs with their seeds together, the best first."""
    columns = differing([run.settings for run in runs])
    found: dict[tuple[str, ...], Configuration] = {}
    for run in runs:
        values = {key: run.settings.get(key, "") for key in columns}
        found.setdefault(tuple(values.values()), Configuration(values)).runs.append(run)
    sign = 1 if metric in LOWER_IS_BETTER else -1
    for each in found.values():
        each.runs.sort(key=lambda run: run.seed)
    return sorted(
        found.values(),
        key=lambda each: sign * statistics.mean(each.of(metric) or [float("inf") * sign]),
    )


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys whose values differ. Keys of a choice that not all have count only among those that have it; of keys that say the
    same, the first stays."""
    keys = dict.fromkeys(key for each in settings for key in each)
    found, seen = list[str](), set[tuple[str, ...]]()
    for key in keys:
        group = key.partition(".")[0]
        values = [each.get(key, "") for each in settings]
        if "." in key and group in keys and len({each.get(group) for each in settings}) > 1:
            same: dict[str, set[str]] = {}
            for each in settings:
                same.setdefault(each.get(group, ""), set()).add(each.get(key, ""))
            if all(len(inner) == 1 for inner in same.values()):
                continue
        if len(set(values)) < 2 or _partition(values) in seen:
            continue
        seen.add(_partition(values))
        found.append(key)
    first = ("decoder", "attention", "window", "normalizer")
    return sorted(found, key=lambda key: first.index(key) if key in first else len(first))


def _partition(values: Sequence[str]) -> tuple[str, ...]:
    """Which of the values are the same, whatever they are."""
    names: dict[str, str] = {}
    return tuple(names.setdefault(value, str(len(names))) for value in values)
