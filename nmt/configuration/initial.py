"""The configuration of a run that starts from a trained model (init=RUN_DIR)."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from nmt.configuration.compose import parse
from nmt.configuration.faults import ConfigError, shown, unknown
from nmt.foundation.errors import UserError
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint

NETWORK = (
    "cell", "sizes", "model", "encoder", "decoder", "attention", "window", "normalizer", "tokenizer",
)  # fmt: skip
"""Groups and keys that a configuration takes over from the initial model."""
SHAPING = ("model.copy", "model.lexical")
"""Keys that add parameters to the network, or remove some."""


def read_initial(path: str) -> Checkpoint:
    """The checkpoint of init=. Raises UserError if it is not found, or if it classifies."""
    saved = ckpt.read(ckpt.find_checkpoint(path, "init"))
    ckpt.check_kind(saved, "train")
    return saved


def with_network_of(
    config: Mapping[str, Any], path: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """A configuration with the network and the tokenizer of the model in `path`, and the errors of the overrides.

    Single keys of these groups count where they are typed, such as model.dropout. Another choice of such a group is an
    error, and so is a key that the group of the model does not have.
    """
    initial = read_initial(path).meta.get("config")
    if not isinstance(initial, dict):
        raise UserError(f"init={path}: holds no configuration; it is damaged")
    inherited = {name: copy.deepcopy(initial[name]) for name in NETWORK if name in initial}
    errors = []
    for override in parse(overrides)[0]:
        whole = override.key_or_group
        group, _, key = whole.partition(".")
        if group not in NETWORK:
            continue
        value = override.value()
        node = inherited.get(group)
        if not key or group == "sizes":
            errors.append(
                ConfigError(
                    whole,
                    f"network and tokenizer are those of init={path}; "
                    "only single keys of theirs can change",
                    shown(value),
                )
            )
        elif not isinstance(node, dict):
            errors.append(unknown(whole, []))
        elif whole in SHAPING and value != node.get(key, False):
            errors.append(
                ConfigError(
                    whole,
                    f"adds to the network or takes from it, and its weights are those of init={path}; "
                    "leave it out",
                    shown(value),
                )
            )
        else:
            node[key] = value
    return {**config, **inherited}, errors
