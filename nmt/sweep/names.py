"""The name of a run's folder: by what it differs from the other runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

FIRST = ("experiment", "data", "encoder", "decoder", "attention", "window", "normalizer", "pooling")
"""Groups that begin a name, in this order; the seed ends it."""
GROUPS = {*FIRST, "tokenizer", "optimizer", "schedule", "objective", "search", "metric", "trainer"}
"""Groups, whose choices need no name before them."""
LONGEST = 120
"""Characters of a name."""


def differing(described: Sequence[Mapping[str, str]]) -> list[str]:
    """Keys that do not have the same value in all of them, in the order of names."""
    keys = dict.fromkeys(key for values in described for key in values)
    found = [key for key in keys if len({values.get(key) for values in described}) > 1]
    place = {key: i for i, key in enumerate(FIRST)} | {"seed": len(FIRST) + 1}
    return sorted(found, key=lambda key: place.get(key, len(FIRST)))


def usual_parts(
    values: Mapping[str, str], config: Mapping[str, Any]
) -> list[tuple[str, str | None]]:
    """What names a run that is alone."""
    keys = [
        key
        for key in ("decoder", "attention", "pooling", "seed")
        if isinstance(config.get(key), str | int)
    ]
    return [(key, str(config[key])) for key in keys] or list(values.items())


def name_of(parts: Sequence[tuple[str, str | None]]) -> str:
    """`bahdanau-concat-seed1`: choices by their names, values after theirs."""
    last = [key.rpartition(".")[2] for key, _ in parts]
    said = []
    for (key, value), short in zip(parts, last, strict=True):
        if value is None:
            continue
        name = short if last.count(short) == 1 else key
        number = re.fullmatch(r"-?[\d.]+(e-?\d+)?", value)
        said.append(value if key in GROUPS else f"{name}{value}" if number else f"{name}-{value}")
    name = re.sub(r"[^\w.+-]+", "-", "-".join(said)).strip("-.") or "run"
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
