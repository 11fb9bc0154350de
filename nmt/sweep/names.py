"""Names of run folders in a sweep, built from the settings that differ between runs."""

import hashlib
import re
from collections.abc import Mapping, Sequence

FIRST = ("experiment", "data", "encoder", "decoder", "attention", "window", "normalizer", "pooling")
"""Configuration groups whose choices begin a run name, in order; the seed ends the name."""
GROUPS = {*FIRST, "tokenizer", "optimizer", "schedule", "objective", "search", "metric", "trainer"}
"""Configuration groups whose choices appear in a run name without the group's name."""
LONGEST = 120
"""Maximum number of bytes of a run name in UTF-8."""
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
        separator = "" if NUMBER.fullmatch(value) else "-"
        words.append(value if key in GROUPS else f"{label}{separator}{value}")
    name = re.sub(r"[^\w.+-]+", "-", "-".join(words)).strip("-.") or "run"
    encoded = name.encode()
    if len(encoded) <= LONGEST:
        return name
    # The hash distinguishes long names with equal beginnings.
    beginning = encoded[: LONGEST - 9].decode(errors="ignore")
    return f"{beginning}-{hashlib.sha256(encoded).hexdigest()[:8]}"
