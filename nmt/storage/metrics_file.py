"""metrics.jsonl of a run: all figures of training and of validations, one JSON object per line."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
TAIL = 20_000
"""Bytes at the end of the file that hold the latest figures."""


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All figures of a run; damaged lines and a half-written last line are left out."""
    try:
        lines = (folder / METRICS).read_bytes().splitlines()
    except OSError:
        return []
    return _entries(lines)


def latest_metrics(folder: Path) -> dict[str, dict[str, Any]]:
    """The last figures of each kind, such as `train` and `validation`."""
    try:
        with open(folder / METRICS, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().splitlines()
    except OSError:
        return {}
    return {entry["kind"]: entry for entry in _entries(lines)}


def _entries(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    entries = []
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        is_entry = isinstance(entry, dict) and isinstance(entry.get("update"), int)
        if is_entry and isinstance(entry.get("kind"), str):
            entries.append(entry)
    return entries
