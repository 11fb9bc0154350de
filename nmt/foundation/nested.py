"""Nested configurations as flat ones."""

from collections.abc import Mapping
from typing import Any


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by their whole keys, such as `encoder.hidden_size`; values that are None left out."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{key}.")
        elif value is not None:
            values[prefix + key] = value
    return values
