"""Configurations of runs as plain containers: their flat form, and the settings that change a
run."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

NOT_LEARNT = (
    "run_dir", "resume", "device", "threads", "sweep", "tracker", "callback", "keep_validations",
    "final_test",
)  # fmt: skip
"""Keys that do not change what a run learns."""
NOT_LEARNT_BY_TRAINER = ("stop_after", "save_every", "log_every", "keep")
"""Keys of `trainer` that do not change what a run learns."""


def learnt_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that change what a run learns."""
    settings = {key: value for key, value in config.items() if key not in NOT_LEARNT}
    trainer = settings.get("trainer")
    if isinstance(trainer, Mapping):
        settings["trainer"] = {
            key: value for key, value in trainer.items() if key not in NOT_LEARNT_BY_TRAINER
        }
    return settings


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by their whole keys, such as `encoder.hidden_size`; values that are None left out."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            values[prefix + key] = value
    return values


def digest(value: Any) -> str:
    """SHA-256 of plain containers, in hexadecimal digits. The order of keys does not count."""
    # default=str: paths and numbers of numpy are hashed as they are shown.
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
