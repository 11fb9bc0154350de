"""Converts checkpoints of older versions of nmt to the current format."""

from __future__ import annotations

from typing import Any

MOVED = {"nmt.encoder.Encoder": "nmt.encoder.bidirectional.Bidirectional"}
"""`_target_`s of format 1 that have moved."""
ANSWERING = ("model", "input", "output", "format", "errors", "explain")
"""Keys that a classifier's configuration had in format 1 and that now belong to nmt.label."""

SWEEPING = ("grids",)
"""Keys of format 2 that belong to no run."""


def upgraded(meta: dict[str, Any], version: int) -> dict[str, Any]:
    """The header of a checkpoint as this version would have written it."""
    config = meta.get("config")
    if not isinstance(config, dict):
        return meta
    if version > 1:
        return {**meta, "config": {key: value for key, value in config.items() if key not in SWEEPING}}
    groups = {
        key: {**value, "_target_": MOVED.get(str(value["_target_"]), value["_target_"])}
        for key, value in config.items()
        if isinstance(value, dict) and "_target_" in value
    }
    dropped = ANSWERING if meta.get("command") == "classify" else ()
    kept = {key: value for key, value in {**config, **groups}.items() if key not in (*dropped, *SWEEPING)}
    return {**meta, "format": 2, "config": kept}
