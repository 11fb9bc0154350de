"""Names of run folders in a sweep, built from the settings that differ between runs."""

import hashlib
import re
from collections.abc import Mapping, Sequence

FIRST = ("experiment", "data", "encoder", "decoder", "attention", "window", "normalizer", "pooling")
"""Configuration groups whose choices begin a run name, in order; the seed ends the name."""
GROUPS = {*FIRST, "tokenizer", "optimizer", "schedule", "objective", "search", "metric", "trainer"}
"""Configuration groups whose choices appear in a run name without the group's name."""
LONGEST = 120
"""Maximum number of characters in a run name."""
NUMBER = re.compile(r"-?[\d.]+(e[+-]?\d+)?")


def differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the keys whose values differ between runs, in the order of a run name."""
    keys = dict.fromkeys(key for values in settings for key in values)
    differ = [key for key in keys if len({values.get(key) for values in settings}) > 1]
    # Other keys come between the groups of FIRST and the seed.
    order = {key: i for i, key in enumerate(FIRST)} | {"seed": len(FIRST) + 1}
    return sorted(differ, key=lambda key: order.get(key, len(FIRST)))


def name_of(parts: Mapping[str, str]) -> str:
    """Returns a run name such as `bahdanau-concat-lr0.001-seed1`; `run` if no setting differs.

    parts: values of the settings that distinguish the run, by key
    """
    short_keys = [key.rpartition(".")[2] for key in parts]
    words = []
    for (key, value), short in zip(parts.items(), short_keys, strict=True):
        label = short if short_keys.count(short) == 1 else key
        if key in GROUPS:
            words.append(value)
        elif NUMBER.fullmatch(value):
            words.append(f"{label}{value}")
        else:
            words.append(f"{label}-{value}")
    name = re.sub(r"[^\w.+-]+", "-", "-".join(words)).strip("-.") or "run"
    if len(name) <= LONGEST:
        return name
    # The hash distinguishes long names with equal beginnings.
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
