"""Conversion of configurations and checkpoints from older versions to the current format."""

from typing import Any

RENAMED = {
    "nmt.encoder.Encoder": "nmt.model.encoder.bidirectional.Bidirectional",
    "nmt.schedule.Step": "nmt.training.schedule.StepDecay",
    "nmt.schedule.Linear": "nmt.training.schedule.LinearDecay",
    "nmt.sweep.grid.Grid": "nmt.sweep.GridSearch",
    "nmt.sweep.grid_search": "nmt.sweep",
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
        f"nmt.training.tracker.{name}": "nmt.training.tracker"
        for name in ("mlflow", "tensorboard", "trackio", "wandb")
    },
    **{
        f"nmt.data.{name}": f"nmt.data.sources.{name}"
        for name in ("captions", "digits", "everyday", "hub", "mix", "reverse", "table", "text")
    },
}
"""Maps old prefixes of import paths to current prefixes; the longest matching prefix applies."""
NESTED = {
    "nmt.model.encoder.multi_modal.BidirectionalGrid": "nmt.model.encoder.grid.Grid",
    "nmt.model.encoder.multi_modal.BidirectionalConvolution": (
        "nmt.model.encoder.convolution.Convolution"
    ),
}
"""Maps the import paths of former multi-modal encoders to those of the current image encoders.

In a former encoder, the keys of the text encoder and of the image encoder were at the same level of
the configuration.
"""
OF_PICTURES = ("channels", "longest", "widths", "halvings", "norm", "positions", "feature_dropout")
"""Names of the configuration keys of the image encoders `Grid` and `Convolution`."""
ANSWERING = ("model", "input", "output", "format", "errors", "explain")
"""Keys of the command nmt.label, which an upgrade removes from the configurations of classifiers in
checkpoints of format 1."""


def renamed(target: str) -> str:
    """Returns the current import path of a class.

    target: import path of the class, current or from an older version of nmt
    """
    for prefix in sorted(RENAMED, key=len, reverse=True):
        if target == prefix or target.startswith(f"{prefix}."):
            # A later version may have moved the new path again.
            return renamed(RENAMED[prefix] + target[len(prefix) :])
    return target


def with_renamed_targets(config: Any) -> Any:
    """Returns a copy of a configuration with the current import paths of all classes, in nested
    groups too.
    """
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
    """Converts the configuration of a former multi-modal encoder to the current format."""
    return {
        "_target_": "nmt.model.encoder.multi_modal.MultiModal",
        "words": {
            **{key: value for key, value in encoder.items() if key not in OF_PICTURES},
            "_target_": "nmt.model.encoder.bidirectional.Bidirectional",
        },
        "places": {
            "_target_": NESTED[encoder["_target_"]],
            **{key: value for key, value in encoder.items() if key in OF_PICTURES},
        },
    }


def upgraded(meta: dict[str, Any], version: int) -> dict[str, Any]:
    """Returns the header of a checkpoint, converted to the current format.

    meta: JSON values of the header
    version: format version of the file
    """
    config = meta.get("config")
    if not isinstance(config, dict):
        return meta
    config = with_renamed_targets(config)
    # Keys of sweeps and of other commands are not part of a run's configuration.
    obsolete: tuple[str, ...] = ("grids",)
    if version == 1 and meta.get("command") == "classify":
        obsolete += ANSWERING
    current = {key: value for key, value in config.items() if key not in obsolete}
    return {**meta, "format": max(version, 2), "config": current}
