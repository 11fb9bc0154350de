"""metrics.jsonl of a run: metrics of training and of validations, one JSON object per line."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
TAIL = 20_000
"""Bytes at the end of the file that contain the latest metrics."""


def read_metrics(folder: Path, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """All entries of a run, without damaged lines and a half-written last line.

    folder: run directory
    last_bytes: number of bytes at the end of the file that are read; None: the whole file
    """
    try:
        with open(folder / METRICS, "rb") as file:
            if last_bytes is not None:
                # the first line may be incomplete
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


def latest_metrics(folder: Path) -> dict[str, dict[str, Any]]:
    """The last entry of each kind, such as `train` and `validation`."""
    return {entry["kind"]: entry for entry in read_metrics(folder, TAIL)}
