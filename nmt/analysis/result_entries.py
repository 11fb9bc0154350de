"""Entries for a register of results: the numbers in a report, and how to reproduce them.

In the repository of nmt, `scripts/register/schema.json` describes the entries, and
`scripts/results.py --add` adds them to the register.
"""

import json
import math
import re
import shlex
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from nmt.analysis.ranking import TESTED, Ranking
from nmt.analysis.run_groups import Configuration
from nmt.analysis.significance import over_sentences
from nmt.metric import TITLES
from nmt.storage.files import read_json_object

NORMAL_QUANTILE = 1.96
"""97.5 % quantile of the normal distribution, for 95 % confidence intervals."""
STUDENT_QUANTILES = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""97.5 % quantiles of Student's t-distribution with 1 to 9 degrees of freedom."""
SAMPLES = 1000
"""Number of bootstrap samples for the confidence interval of a single run."""


def entries_text(rankings: Sequence[Ranking]) -> str:
    """Returns a JSON array with an entry for each configuration of a report."""
    entries = [
        _entry(row, ranking)
        for ranking in rankings
        for row in ranking.rows
        if row.runs[0].answers is None  # translations of other tools have no run
    ]
    ids: Counter[str] = Counter()
    for entry in entries:
        ids[entry["id"]] += 1
        if ids[entry["id"]] > 1:  # such as alpha=1 and alpha=-1
            entry["id"] += f"_{ids[entry['id']]}"
    return json.dumps(entries, indent=2, ensure_ascii=False) + "\n"


def _entry(row: Configuration, ranking: Ranking) -> dict[str, Any]:
    run = row.runs[0]
    record = read_json_object(run.folder / "run.json")
    versions = record.get("versions", {})
    processor, threads = record.get("processor"), record.get("threads")
    # results.json has no date, but is written only once, at the end of the run.
    written = (run.folder / "results.json").stat().st_mtime
    return {
        "id": "run_" + re.sub(r"[^a-z0-9]+", "_", row.label.lower()).strip("_"),
        "kind": "measured",
        "system": "nmt",
        "task": f"{run.settings.get('data', 'text')}, {row.label}, {ranking.part}",
        "command": _command(record, is_single=len(row.runs) == 1),
        "seeds": [run.seed for run in row.runs],
        "metrics": _metrics(row, ranking),
        "data": dict(run.data),
        "weights": [
            read_json_object(result.folder / "results.json").get("weights") for result in row.runs
        ],
        "device": {"cpu": "cpu", "cuda": "gpu"}.get(record.get("device", "")),
        "machine": processor and f"{processor}, {threads} thread{'s' if threads != 1 else ''}",
        "version": versions.get("nmt"),
        "commit": record.get("commit"),
        "torch": versions.get("torch"),
        "date": datetime.fromtimestamp(written).date().isoformat(),
    }


def _command(record: Mapping[str, Any], *, is_single: bool) -> str | None:
    """Returns the command that started a run, without the run folder; None if unknown.

    record: content of run.json
    is_single: whether the command is for this run only and thus contains its seed; False for a
        command without a seed, for runs with several seeds
    """
    # The first command starts the run; others resume it.
    program, *words = (record.get("commands") or [[""]])[0]
    if not program:
        return None
    left_out = ("run_dir=", "resume=") if is_single else ("run_dir=", "resume=", "seed=")
    settings = [word for word in words if not word.startswith(left_out)]
    # A run that was started from Python has the name of the user's script.
    file = Path(program)
    name = ["-m", f"nmt.{file.stem}"] if file.parent.name == "nmt" else [program]
    return shlex.join(["python", *name, *settings])


def _metrics(row: Configuration, ranking: Ranking) -> dict[str, dict[str, Any]]:
    """Returns scores, costs and sizes of a configuration, with their units and intervals."""
    run = row.runs[0]
    metrics = {}
    for name in run.scores:
        values = row.scores(name)
        base = name.rpartition("/")[2]  # of a further validation set, such as second/loss
        unit = {"exact": "%", "loss": "nats"}.get(base, TITLES.get(base, "%"))
        metrics[name] = {**_summary(values, unit), "signature": run.signatures.get(name) or None}
        if len(values) == 1 and (interval := _over_sentences(row, name, ranking)):
            metrics[name]["interval"] = {**interval, "over": "sentences"}
    costs: dict[str, tuple[str, list[Any]]] = {
        "seconds": ("s", [run.seconds for run in row.runs]),
        "tokens_per_second": ("target tokens/s", [run.speed for run in row.runs]),
        "memory_mb": ("MB", [run.memory for run in row.runs]),
        "parameters": ("parameters", [run.parameters]),
        "updates": ("updates", [run.updates]),
    }
    # Runs of older versions have no memory and parameters; short runs have no speed.
    return metrics | {
        name: _summary(figures, unit)
        for name, (unit, figures) in costs.items()
        if None not in figures
    }


def _summary(values: Sequence[float], unit: str) -> dict[str, Any]:
    """Returns the mean of the values. If there are several values, also returns the values and a
    confidence interval.

    values: value of each seed
    unit: unit of the values
    """
    mean = statistics.mean(values)  # an integer if the values are integers
    summary: dict[str, Any] = {"value": round(mean, 4), "unit": unit}
    if len(values) > 1:
        degrees = len(values) - 1
        quantile = (
            STUDENT_QUANTILES[degrees - 1]
            if degrees <= len(STUDENT_QUANTILES)
            else NORMAL_QUANTILE + 2.372 / degrees + 2.82 / degrees**2  # approximates Student's
        )
        half = quantile * statistics.stdev(values) / math.sqrt(len(values))
        summary["values"] = [round(value, 4) for value in values]
        summary["interval"] = {**_interval(mean, half), "over": "seeds"}
    return summary


def _over_sentences(row: Configuration, name: str, ranking: Ranking) -> dict[str, float] | None:
    """Returns the 95 % confidence interval of a score over test sentences; None if unknown.

    row: configuration with a single run
    name: metric of the score
    ranking: ranking that contains the configuration; bootstrap intervals exist for the ranking's
        metric only
    """
    run = row.runs[0]
    lines = run.lines()
    references = run.references
    if not lines or not references or len(lines) != len(references[0]):
        return None
    if name == "exact":
        return _wilson(run.scores[name] / 100, len(lines))
    if name != ranking.metric or name not in TESTED:
        return None
    # A report with one configuration has no test over sentences.
    tested = (
        row.over_sentences
        or over_sentences({"": lines}, references, run.scorer, name, samples=SAMPLES, trials=0)[""]
    )
    return _interval(tested.score, tested.confidence)


def _wilson(share: float, count: int) -> dict[str, float]:
    """Returns the 95 % Wilson score interval of a proportion, in per cent.

    share: observed proportion, 0 to 1
    count: number of sentences
    """
    scale = NORMAL_QUANTILE**2 / count
    center = (share + scale / 2) / (1 + scale)
    half = math.sqrt(share * (1 - share) * scale + scale**2 / 4) / (1 + scale)
    return _interval(100 * center, 100 * half)


def _interval(center: float, half: float) -> dict[str, float]:
    return {"low": round(center - half, 4), "high": round(center + half, 4)}
