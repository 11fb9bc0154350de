"""Conversion of configurations and checkpoints of older versions to the current format."""

from typing import Any

RENAMED = {
    "nmt.encoder.Encoder": "nmt.model.encoder.bidirectional.Bidirectional",
    "nmt.schedule.Step": "nmt.training.schedule.StepDecay",
    "nmt.schedule.Linear": "nmt.training.schedule.LinearDecay",
    "nmt.sweep.grid.Grid": "nmt.sweep.grid_search.GridSearch",
    "nmt.attention": "nmt.model.attention",
    "nmt.window": "nmt.model.attention.window",
    "nmt.normalizer": "nmt.model.attention.normalizer",
    "nmt.model.encoder.beside": "nmt.model.encoder.multi_modal",
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
"""New prefixes of class paths by the old ones; the longest matching prefix applies."""
NESTED = {
    "nmt.model.encoder.multi_modal.BidirectionalGrid": "nmt.model.encoder.grid.Grid",
    "nmt.model.encoder.multi_modal.BidirectionalConvolution": (
        "nmt.model.encoder.convolution.Convolution"
    ),
}
"""Former encoders of words and pictures, whose keys were in one list, and their encoders of
pictures."""
OF_PICTURES = ("channels", "longest", "widths", "halvings", "norm", "positions", "feature_dropout")
"""Keys of encoder=grid and encoder=convolution."""
ANSWERING = ("model", "input", "output", "format", "errors", "explain")
"""Keys of nmt.label that a classifier's configuration had in format 1; dropped on upgrade."""
SWEEPING = ("grids",)
"""Keys of format 2 that are not settings of a run; dropped on upgrade."""


def renamed(target: str) -> str:
    """The current path of a class. `target`: its path in any version of nmt."""
    for prefix in sorted(RENAMED, key=len, reverse=True):
        if target == prefix or target.startswith(f"{prefix}."):
            # The new path may have moved again since.
            return renamed(RENAMED[prefix] + target[len(prefix) :])
    return target


def with_renamed_targets(config: Any) -> Any:
    """A copy of a configuration with current class paths, also in lists and nested groups."""
    if isinstance(config, list):
        return [with_renamed_targets(item) for item in config]
    if not isinstance(config, dict):
        return config
    current = {
        key: renamed(value)
        if key == "_target_" and isinstance(value, str)
        else with_renamed_targets(value)
        for key, value in config.items()
    }
    target = current.get("_target_")
    return _nested(current) if isinstance(target, str) and target in NESTED else current


def _nested(encoder: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an encoder of words and pictures, from the list of the keys of both."""
    keys = {key: value for key, value in encoder.items() if key != "_target_"}
    return {
        "_target_": "nmt.model.encoder.multi_modal.MultiModal",
        "words": {
            "_target_": "nmt.model.encoder.bidirectional.Bidirectional",
            **{key: value for key, value in keys.items() if key not in OF_PICTURES},
        },
        "places": {
            "_target_": NESTED[encoder["_target_"]],
            **{key: value for key, value in keys.items() if key in OF_PICTURES},
        },
    }


def upgraded(meta: dict[str, Any], version: int) -> dict[str, Any]:
    """The header of a checkpoint, converted to the current format.

    meta: header of the file
    version: format of the file
    """
    config = meta.get("config")
    if not isinstance(config, dict):
        return meta
    config = with_renamed_targets(config)
    obsolete: tuple[str, ...] = SWEEPING
    if version == 1 and meta.get("command") == "classify":
        obsolete += ANSWERING
    current = {key: value for key, value in config.items() if key not in obsolete}
    return {**meta, "format": max(version, 2), "config": current}
