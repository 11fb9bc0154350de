"""Configurations that begin with a saved one: of a run that is resumed (resume=), or of a model to
start from (init=).
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.configuration.compose import compose, options, parse
from nmt.configuration.faults import ConfigError, broken, refuse, shown, unknown
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint

FIXED = ("trainer.ema", "optimizer._target_", "objective._target_", "search._target_")
"""Keys of changeable groups that must not change on resume."""
CHOSEN_ANEW = ("search", "metric")
"""Groups whose choice may change on resume, because no update depends on them."""
CHANGEABLE = (
    "trainer", "optimizer", "objective", "search", "metric", "choose_by", "translation", "device", "max_validation",
)  # fmt: skip
"""Keys and groups that may change on resume; the weights or the data depend on all others."""
NETWORK = (
    "cell", "sizes", "model", "encoder", "decoder", "attention", "window", "normalizer", "tokenizer",
)  # fmt: skip
"""Groups and keys that a configuration takes over from the initial model."""
SHAPING = ("model.copy", "model.lexical")
"""Keys that add parameters to the network, or remove some."""


def saved_run(path: str, command: str) -> Checkpoint:
    """The checkpoint to resume a run from. Raises UserError if it is not found, or if another
    command wrote it.
    """
    file = Path(path) / ckpt.LAST
    missing = f"no {ckpt.LAST} in it" if Path(path).is_dir() else "there is no such folder"
    nothing = f"{missing}; there is nothing to go on with"
    refuse(broken((not file.is_file(), "resume", nothing, path)))
    saved = ckpt.read(file)
    ckpt.check_kind(saved, command)
    return saved


def read_initial(path: str) -> Checkpoint:
    """The checkpoint of init=. Raises UserError if it is not found, or if it classifies."""
    saved = ckpt.read(ckpt.find_checkpoint(path, "init"))
    ckpt.check_kind(saved, "train")
    return saved


def changed(saved: Checkpoint, command: str, changes: Sequence[str]) -> dict[str, Any]:
    """The configuration of a run with some of its values changed. What a file says is data: no
    reference in it is followed. Raises ConfigErrors for what cannot change.
    """
    config = _configuration("resume", saved)
    choices = [text for text in changes if _is_another_choice(text)]
    for text in choices:
        group = text.partition("=")[0]
        config[group] = compose(command, [text])[group]

    def refusal(key: str, value: Any) -> str | None:
        group = key.partition(".")[0]
        if key == "run_dir":
            return "a run goes on in its own folder, the one of resume=: leave it out"
        if group in CHANGEABLE and key not in FIXED and not isinstance(config.get(key), dict):
            return None
        of_groups = ", ".join(f"{name}={'|'.join(options(name))}" for name in CHOSEN_ANEW)
        return (
            "cannot change when resuming (the weights and the state were made with the old value). "
            f"What can: {of_groups}, and single keys of {', '.join(CHANGEABLE)}"
        )

    refuse(_set(config, [text for text in changes if text not in choices], refusal))
    return config


def _is_another_choice(text: str) -> bool:
    key, _, value = text.partition("=")
    return key in CHOSEN_ANEW and value in options(key)


def with_network_of(
    config: Mapping[str, Any], path: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """A configuration with the network and the tokenizer of the model in `path`, and the errors of
    the overrides.

    Single keys of these groups count where they are typed, such as model.dropout. Another choice
    of such a group is an error, and so is a key that the group of the model does not have.
    """
    initial = _configuration("init", read_initial(path))
    taken = {**config, **{name: initial[name] for name in NETWORK if name in initial}}

    def refusal(key: str, value: Any) -> str | None:
        group, _, name = key.partition(".")
        if not name or group == "sizes":
            return f"network and tokenizer are those of init={path}; only single keys of theirs can change"
        if key in SHAPING and value != taken["model"].get(name, False):
            return f"adds to the network or takes from it, and its weights are those of init={path}; leave it out"
        return None

    of_network = [
        text for text in overrides if text.lstrip("+~").split("=")[0].split(".")[0] in NETWORK
    ]
    return taken, _set(taken, of_network, refusal)


def _configuration(key: str, saved: Checkpoint) -> dict[str, Any]:
    """A copy of the configuration of a checkpoint that `key` names."""
    config: Any = saved.meta.get("config")
    damaged = "holds no configuration; it is damaged"
    refuse(broken((not isinstance(config, dict), key, damaged, saved.path)))
    return copy.deepcopy(config)


def _set(
    config: dict[str, Any], overrides: Sequence[str], refusal: Callable[[str, Any], str | None]
) -> list[ConfigError]:
    """Sets single keys of a configuration; returns the errors. `refusal`: why a key must not have
    a value.
    """
    parsed, errors = parse(overrides)
    for override in parsed:
        key, value = override.key_or_group, override.value()
        group, _, name = key.rpartition(".")
        node = config.get(group) if group else config
        problem = refusal(key, value)
        if problem:
            errors.append(ConfigError(key, problem, shown(value)))
        elif not isinstance(node, dict):
            errors.append(unknown(key, []))
        else:
            node[name] = value
    return errors
