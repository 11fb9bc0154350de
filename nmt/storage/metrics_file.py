"""Reader of metrics.jsonl: training and validation metrics of a run, one JSON object per line."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
TAIL = 20_000
"""Number of bytes read at the end of metrics.jsonl, enough for the latest metrics of each kind."""


def is_outdated(folder: Path, updates: int) -> bool:
    """Returns whether a run was trained further after its final evaluation.

    folder: run folder
    updates: number of updates before the final evaluation
    """
    return any(entry["update"] > updates for entry in read_metrics(folder, TAIL))


def read_metrics(folder: Path, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """Returns the metrics of a run from its file metrics.jsonl. Damaged and incomplete lines of the
    file are skipped.

    folder: run folder
    last_bytes: number of bytes to read at the end of the file; None for the whole file
    """
    try:
        with open(folder / METRICS, "rb") as file:
            if last_bytes is not None:
                # the first line read may be incomplete
                file.seek(max(0, file.seek(0, os.SEEK_END) - last_bytes))
            lines = file.read().splitlines()
    except OSError:
        return []
    entries = []
    for line in lines:
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            is_entry = isinstance(entry, dict) and isinstance(entry.get("update"), int)
            if is_entry and isinstance(entry.get("kind"), str):
                entries.append(entry)
    return entries
