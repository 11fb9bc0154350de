"""Functions for run configurations: flat keys, digests, and settings that affect training."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

NOT_LEARNT = (
    "run_dir", "resume", "repeats", "device", "threads", "log", "sweep", "tracker", "callback",
    "keep_validations", "final_test",
)  # fmt: skip
"""Top-level configuration keys without effect on the trained weights."""
NOT_LEARNT_BY_TRAINER = ("stop_after", "save_every", "log_every", "keep")
"""Keys of the group `trainer` without effect on the trained weights. The validation before a
planned stop can only change which weights are the best."""


def learnt_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that can change the trained weights."""
    settings = {key: value for key, value in config.items() if key not in NOT_LEARNT}
    trainer = settings.get("trainer")
    if isinstance(trainer, Mapping):
        settings["trainer"] = {
            key: value for key, value in trainer.items() if key not in NOT_LEARNT_BY_TRAINER
        }
    return settings


def flat(config: Mapping[str, Any], prefix: str = "", null: Any = None) -> dict[str, Any]:
    """Returns values by dotted key, such as `encoder.hidden_size`.

    config: nested configuration
    prefix: beginning of each dotted key
    null: replacement for values that are None; without it, keys with the value None are left out
    """
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{key}.", null)
        elif value is not None or null is not None:
            values[prefix + key] = null if value is None else value
    return values


def value_of(config: Any, key: str) -> Any:
    """Returns the value of a dotted key, such as window.estimator; None if not found."""
    node = config
    for name in key.split("."):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def changed_keys(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the sorted keys whose values differ between two configurations; a missing key counts
    as None."""
    return sorted(key for key in {**before, **now} if before.get(key) != now.get(key))


def class_label(target: str, group: str) -> str:
    """Returns a short name of a class for tables.

    A class of nmt is named after its module, unless all classes of the group share the module. Any
    other class has its class name in snake case as short name.

    target: path of the class
    group: group of the configuration that chooses the class
    """
    [*_, module, name] = target.split(".")
    if target.startswith("nmt.") and module != group:
        return module
    return re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", name).lower()


def digest(value: Any) -> str:
    """Returns the SHA-256 digest of nested dictionaries and lists; the order of keys has no
    effect."""
    # With default=str, paths and NumPy scalars are hashed by their string form.
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
