"""Configurations that begin with a saved one: a resumed run (resume=), an initial model (init=)."""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nmt.configuration.compose import compose, options, parse, reason
from nmt.configuration.faults import ConfigError, ConfigErrors, broken, refuse, shown, unknown
from nmt.foundation import plugins
from nmt.foundation.configurations import NOT_LEARNT, flat
from nmt.foundation.part_limits import RunView
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.storage.upgrade import with_renamed_targets

FIXED = ("trainer.ema", "optimizer._target_", "objective._target_", "search._target_")
"""Keys of changeable groups that must not change on resume."""
CHOSEN_ANEW = ("search", "metric")
"""Groups whose choice may change on resume, because training does not depend on them."""
CHANGEABLE = (
    "trainer", "optimizer", "objective", "search", "metric", "choose_by", "translation", "device",
    "max_validation", "threads", "final_test",
)  # fmt: skip
"""Keys and groups that may change on resume. The weights or the data depend on all others."""
NETWORK = (
    "cell", "sizes", "model", "encoder", "decoder", "attention", "window", "normalizer",
    "tokenizer",
)  # fmt: skip
"""Groups and keys that are those of the initial model."""
SHAPING = ("model.copy", "model.lexical")
"""Keys that add parameters to the network, or remove some."""


def saved_run(path: str, command: str) -> Checkpoint:
    """The checkpoint to resume a run from.

    path: run directory
    command: command of the run

    Raises UserError if there is no checkpoint, if another command wrote it, or if it needs plugins
    that are not permitted.
    """
    file = Path(path) / ckpt.LAST
    missing = f"no {ckpt.LAST} in it" if Path(path).is_dir() else "no such folder"
    nothing = f"{missing}; cannot resume"
    refuse(broken((not file.is_file(), "resume", nothing, path)))
    saved = ckpt.read_model(str(file), "resume", command)
    plugins.refuse_missing(saved.meta, f"resume={path}")
    return saved


def refuse_changes(saved: Checkpoint, config: Mapping[str, Any]) -> None:
    """Raises ConfigErrors if a configuration differs from that of a run in keys that are fixed.

    saved: checkpoint of the run
    config: configuration with which it is to continue
    """
    before = flat(saved.config)
    now = flat(config)
    errors = []
    for key in sorted({*before, *now}):
        group = key.partition(".")[0]
        is_free = group in (*CHOSEN_ANEW, *NOT_LEARNT) or (group in CHANGEABLE and key not in FIXED)
        if not is_free and before.get(key) != now.get(key):
            problem = (
                f"cannot change when resuming: it was {shown(before.get(key))} when this run began;"
                " restore it, or choose another run_dir"
            )
            errors.append(ConfigError(key, problem, shown(now.get(key))))
    refuse(errors)


def read_initial(path: str) -> Checkpoint:
    """The checkpoint of init=.

    Raises UserError if it is not found, classifies, or needs plugins that are not permitted.
    """
    saved = ckpt.read_model(path, "init", "train")
    plugins.refuse_missing(saved.meta, f"init={path}")
    return saved


def repeated(path: str, changes: Sequence[str]) -> tuple[dict[str, Any], list[ConfigError]]:
    """The configuration of a run that is trained again, with some changed values, and errors.

    path: config.yaml of the run, or its folder
    changes: overrides of single keys

    Raises ConfigErrors if the file cannot be read.
    """
    file = Path(path) / "config.yaml" if Path(path).is_dir() else Path(path)
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or reason(error)
        problem = f"cannot be read ({why}); give the config.yaml of a run"
        raise ConfigErrors([ConfigError("", f"--from {path}: {problem}")]) from error
    if not isinstance(config, dict) or "data" not in config:
        raise ConfigErrors([ConfigError("", f"--from {path}: not the config.yaml of a run")])
    # The repetition gets a folder of its own, and is a single run.
    config = with_renamed_targets({**config, "run_dir": None, "resume": None, "sweep": None})

    def refusal(key: str, value: Any) -> str | None:
        is_choice = isinstance(config.get(key), dict) or isinstance(value, dict)
        return (
            "--from takes single keys; to choose other parts, type the whole command"
            if is_choice
            else None
        )

    return config, set_keys(config, changes, refusal)


def changed(saved: Checkpoint, command: str, changes: Sequence[str]) -> dict[str, Any]:
    """The configuration of a saved run with some changed values.

    saved: checkpoint of the run
    command: command of the run
    changes: overrides

    ${references} in a checkpoint are not resolved. Raises ConfigErrors for keys that cannot change.
    """
    config = copy.deepcopy(saved.config)  # the checkpoint keeps its own
    choices = []
    for text in changes:
        group, value = text.partition("=")[::2]
        if group in CHOSEN_ANEW and value in options(group):
            choices.append(text)
            # Another choice has its own keys, so the saved values of the group are dropped.
            config[group] = compose(command, [text])[group]

    def refusal(key: str, value: Any) -> str | None:
        group = key.partition(".")[0]
        if key == "run_dir":
            return "a run continues in its own folder, the one of resume=: leave it out"
        if group in CHANGEABLE and key not in FIXED and not isinstance(config.get(key), dict):
            return None
        of_groups = ", ".join(f"{name}={'|'.join(options(name))}" for name in CHOSEN_ANEW)
        return (
            "cannot change when resuming (the weights and the state were made with the old value). "
            f"What can: {of_groups}, and single keys of {', '.join(CHANGEABLE)}"
        )

    refuse(set_keys(config, [text for text in changes if text not in choices], refusal))
    return config


def with_network_of(
    config: Mapping[str, Any], path: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """A configuration with the network and the tokenizer of a trained model, and errors.

    config: configuration of the command line
    path: run directory or checkpoint of the model
    overrides: command line; single keys of the model's groups, such as model.dropout, take effect

    Another choice of such a group is an error, and so is an unknown key.
    """
    initial = copy.deepcopy(read_initial(path).config)
    taken = {**config, **{name: initial[name] for name in NETWORK if name in initial}}

    def refusal(key: str, value: Any) -> str | None:
        if key.partition(".")[0] in (key, "sizes"):
            return f"network and tokenizer are those of init={path}; only single keys can change"
        if key in SHAPING and value != taken["model"].get(key.rpartition(".")[2], False):
            return (
                "adds to the network or takes from it, and its weights are those of "
                f"init={path}; leave it out"
            )
        return None

    of_network = [
        text for text in overrides if text.lstrip("+~").split("=")[0].split(".")[0] in NETWORK
    ]
    return taken, set_keys(taken, of_network, refusal)


def set_keys(
    config: dict[str, Any], overrides: Sequence[str], refusal: Callable[[str, Any], str | None]
) -> list[ConfigError]:
    """Sets single keys of a configuration; returns the errors.

    config: the configuration, which is changed
    overrides: keys with their values
    refusal: function that returns the reason why a key must not have a value, None if it may
    """
    parsed, errors = parse(overrides)
    for override in parsed:
        key = override.key_or_group
        value = override.value()
        group = key.rpartition(".")[0]
        node = RunView(config, {}).value(group) if group else config
        problem = refusal(key, value)
        if problem:
            errors.append(ConfigError(key, problem, shown(value)))
        elif not isinstance(node, dict):
            errors.append(unknown(key, []))
        else:
            node[key.rpartition(".")[2]] = value
    return errors
