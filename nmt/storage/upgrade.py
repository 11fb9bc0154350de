"""Converts configurations and checkpoints of older versions of nmt to the current format."""

from __future__ import annotations

from typing import Any

RENAMED = {
    "nmt.encoder.Encoder": "nmt.model.encoder.bidirectional.Bidirectional",
    "nmt.schedule.Step": "nmt.training.schedule.StepDecay",
    "nmt.schedule.Linear": "nmt.training.schedule.LinearDecay",
    "nmt.sweep.grid.Grid": "nmt.sweep.grid_search.GridSearch",
    "nmt.attention": "nmt.model.attention",
    "nmt.window": "nmt.model.attention.window",
    "nmt.normalizer": "nmt.model.attention.normalizer",
    "nmt.encoder": "nmt.model.encoder",
    "nmt.decoder": "nmt.model.decoder",
    "nmt.pooling": "nmt.model.pooling",
    "nmt.objective": "nmt.training.objective",
    "nmt.optimizer": "nmt.training.optimizer",
    "nmt.schedule": "nmt.training.schedule",
    "nmt.tracker": "nmt.training.tracker",
    **{
        f"nmt.data.{name}": f"nmt.data.sources.{name}"
        for name in ("captions", "digits", "everyday", "hub", "mix", "reverse", "table", "text")
    },
}
"""Prefixes of class paths that have moved, and where they are now. The first prefix that matches counts."""
ANSWERING = ("model", "input", "output", "format", "errors", "explain")
"""Keys that a classifier's configuration had in format 1 and that now belong to nmt.label."""
SWEEPING = ("grids",)
"""Keys of format 2 that belong to no run."""


def renamed(target: str) -> str:
    """The current path of a class, given its path in any version of nmt."""
    for old, new in RENAMED.items():
        if target == old or target.startswith(f"{old}."):
            return new + target[len(old) :]
    return target


def with_renamed_targets(config: Any) -> Any:
    """A copy of a configuration in which every `_target_`, however deeply nested, is a current class path."""
    if isinstance(config, list):
        return [with_renamed_targets(item) for item in config]
    if not isinstance(config, dict):
        return config
    return {
        key: renamed(value)
        if key == "_target_" and isinstance(value, str)
        else with_renamed_targets(value)
        for key, value in config.items()
    }


def upgraded(meta: dict[str, Any], version: int) -> dict[str, Any]:
    """The header of a checkpoint as this version would have written it."""
    config = meta.get("config")
    if not isinstance(config, dict):
        return meta
    config = with_renamed_targets(config)
    dropped = ANSWERING if version == 1 and meta.get("command") == "classify" else ()
    kept = {key: value for key, value in config.items() if key not in (*dropped, *SWEEPING)}
    return {**meta, "format": max(version, 2), "config": kept}
