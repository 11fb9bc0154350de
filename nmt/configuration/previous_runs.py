"""Configurations based on an earlier run, which is resumed (resume=), is repeated (--from), or
supplies the initial network (init=)."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from nmt.components import NETWORK
from nmt.configuration.compose import compose
from nmt.configuration.overrides import parse, set_keys
from nmt.configuration.yaml_files import groups_of, options, reason
from nmt.foundation.configurations import NOT_LEARNT, changed_keys, class_label, flat
from nmt.foundation.part_limits import ConfigError, ConfigErrors, broken, refuse, shown
from nmt.storage import checkpoint as ckpt
from nmt.storage.upgrade import with_renamed_targets

TARGET = "._target_"
"""End of the key that contains the class of a group."""
FIXED = ("trainer.ema", "optimizer._target_", "objective._target_", "search._target_")
"""Keys that must not change on resume, although other keys of their groups may change."""
CHOSEN_ANEW = ("search", "metric", "tracker")
"""Groups whose choice may change on resume, because training does not depend on these groups."""
CHANGEABLE = (
    "trainer", "optimizer", "objective", "search", "metric", "tracker", "choose_by", "translation",
    "device", "max_validation", "keep_validations", "threads", "log", "final_test", "time_budget",
)  # fmt: skip
"""Keys and groups that may change on resume; all other keys determine the weights or the data."""
OF_COST = ("metric.tokenize", "metric.lowercase", "metric.char_order")
"""Keys that must not change on resume if the objective has a cost, which they determine."""
OF_MODEL = (*NETWORK, "sizes", "tokenizer")
"""Keys and groups that a run with init= takes from the initial model."""
REFERRING = {
    "cell": "encoder.cell and decoder.cell",
    "sizes.encoder": "encoder.hidden_size",
    "sizes.decoder": "decoder.hidden_size",
    "sizes.readout": "decoder.readout_size",
    "sizes.vocabulary": "tokenizer.vocabulary_size",
    "time_budget": "trainer.time_budget",
}
"""Maps each key that other keys refer to, for example as ${cell}, to the names of the other keys.

In the config.yaml of a run, the references are replaced by values.
"""
SHAPING = ("model.copy", "model.lexical", "model.lexicon", "model.lexicon_use", "model.tying")
"""Keys that add, change or remove network parameters, and cannot change with init=."""
SHAPING_NAMES = (
    "cell", "hidden_size", "readout_size", "embedding_size", "num_layers", "transition_depth",
    "context_gate",
)  # fmt: skip
"""Last words of further keys of this kind, such as encoder.cell."""


def saved_run(path: str, command: str) -> ckpt.Checkpoint:
    """Returns the checkpoint from which a run is resumed.

    path: run folder
    command: command of the run

    Raises UserError if the checkpoint does not exist, belongs to another command, or needs plugins
    that are not permitted.
    """
    folder = Path(path)
    file = folder / ckpt.LAST
    nothing = "the run folder was not found, so the training cannot be resumed"
    if folder.is_file():
        nothing = f"is a file; give the run folder, such as {folder.parent}"
    elif folder.is_dir() and list(folder.iterdir()) and not (folder / "config.yaml").exists():
        nothing = f"is not a run folder (neither {ckpt.LAST} nor config.yaml was found)"
    elif folder.is_dir():
        nothing = (
            f"the folder has no {ckpt.LAST}, so the training cannot be resumed. If the "
            f"training ended before its first save, repeat the first command with run_dir={path} "
            "resume=auto, or delete the folder"
        )
    refuse(broken((not file.is_file(), "resume", nothing, path)))
    return ckpt.read_model(str(file), "resume", command)


def errors_of_changes(saved: ckpt.Checkpoint, config: Mapping[str, Any]) -> list[ConfigError]:
    """Returns an error for each changed key that must not change on resume.

    saved: checkpoint of the run
    config: configuration for resuming
    """
    before = flat(saved.config)
    now = flat(config)
    why = (
        "this setting cannot change on resume, because the saved weights and state depend on it; "
        "its value was {}. Restore the value, or start a new run, without resume= and with "
        "another run_dir"
    )
    has_cost = "objective.cost" in before
    keys = [
        key
        for key in changed_keys(before, now)
        if not _may_change(key) or (has_cost and key in OF_COST)
    ]
    # The keys of another choice, such as data=text, differ with the choice.
    groups = {key.removesuffix(TARGET) for key in keys if key.endswith(TARGET)}
    errors = []
    for key in keys:
        old = before.get(key)
        new = now.get(key)
        group = key.removesuffix(TARGET)
        if group != key:
            old = old and class_label(old, group)
            new = new and class_label(new, group)
        elif key.rpartition(".")[0] in groups:
            continue
        errors.append(ConfigError(group, why.format(shown(old)), shown(new)))
    return errors


def _may_change(key: str) -> bool:
    """Returns whether a key may change on resume."""
    group = key.partition(".")[0]
    is_free = group in (*CHOSEN_ANEW, *NOT_LEARNT)
    return is_free or (group in CHANGEABLE and key not in FIXED)


def repeated(
    path: str, changes: Sequence[str], command: str
) -> tuple[dict[str, Any], list[ConfigError]]:
    """Returns the configuration for repeating a run with changed values, and the errors in the
    changes.

    path: config.yaml of the run, or the run folder
    changes: overrides of single keys
    command: command of the repeated run

    Raises ConfigErrors if the file cannot be read or another command trained the run.
    """
    file = Path(path) / "config.yaml" if Path(path).is_dir() else Path(path)
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or reason(error)
        problem = f"cannot be read ({why}); name the config.yaml of a run"
        raise ConfigErrors([ConfigError("", f"--from {path}: {problem}")]) from error
    is_run = isinstance(config, dict) and "data" in config
    main_group = "pooling" if "pooling" in groups_of(command) else "decoder"
    refuse(
        broken(
            (not is_run, "", f"--from {path}: not the config.yaml of a run"),
            (
                is_run and main_group not in config,
                "",
                f"--from {path}: nmt.{command} did not train this run",
            ),
        )
    )
    # The repeated run gets a new folder and is not part of a sweep.
    new = {"run_dir": None, "resume": None, "sweep": None, "repeats": str(file.parent)}
    config = with_renamed_targets({**config, **new})

    only_keys = "--from accepts single keys only; to change a group, give the complete command"
    before = flat(config)
    errors = set_keys(config, changes, only_keys)
    now = flat(config)
    no_effect = "has no effect with --from; set {} instead"
    errors += [
        ConfigError(key, no_effect.format(REFERRING[key]), shown(now.get(key)))
        for key in changed_keys(before, now)
        if key in REFERRING
    ]
    return config, errors


def changed(
    saved: ckpt.Checkpoint, command: str, changes: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """Returns the configuration of a saved run with changed values, and the errors in the changes.

    saved: checkpoint of the run
    command: command of the run
    changes: command-line overrides

    ${references} in a checkpoint are not resolved.
    """
    config = copy.deepcopy(saved.config)  # leaves the checkpoint unchanged
    single = []
    for text in changes:
        parsed, _ = parse([text])  # text that cannot be parsed is an error of set_keys
        group = parsed[0].key_or_group if parsed else ""
        choice = parsed[0].value() if parsed else None
        if group in CHOSEN_ANEW and choice in options(group):
            # A new choice has other keys, so the saved values of the group are dropped.
            config[group] = compose(command, [f"{group}={choice}"])[group]
        else:
            single.append(text)
    choices = ", ".join(f"{name}={'|'.join(options(name))}" for name in CHOSEN_ANEW)
    why = (
        "this setting cannot change on resume, because the saved weights and state depend on it; "
        f"allowed are {choices}, and single keys of {', '.join(CHANGEABLE)}"
    )
    errors = set_keys(config, single, why)
    is_typed = any(text.lstrip("+").startswith("trainer.time_budget=") for text in changes)
    if config.get("time_budget") != saved.config.get("time_budget") and not is_typed:
        # In conf/, the value of trainer.time_budget is the reference ${time_budget}.
        config["trainer"]["time_budget"] = config["time_budget"]
    folder = config.get("run_dir")
    of_folder = "cannot change on resume, since resume= names the run folder; leave this key out"
    moved = folder != saved.config.get("run_dir")
    errors += broken((moved, "run_dir", of_folder, folder))
    return config, errors + errors_of_changes(saved, config)


def with_network_of(
    config: Mapping[str, Any], path: str, overrides: Sequence[str]
) -> tuple[dict[str, Any], list[ConfigError]]:
    """Returns a configuration with the network and tokenizer of a trained model, and the errors in
    the overrides.

    config: configuration of the command line
    path: run folder or checkpoint file of the model
    overrides: command-line overrides; single keys of the model's groups, such as model.dropout, may
        change

    Unknown keys are errors, and so is another class in a group that the model determines, such as
    decoder.
    """
    initial = copy.deepcopy(ckpt.read_model(path, "init", "train").config)
    taken = {**config, **{name: initial[name] for name in OF_MODEL if name in initial}}
    before = flat(taken)
    of_network = [
        text for text in overrides if text.lstrip("+~").split("=")[0].split(".")[0] in OF_MODEL
    ]
    why = f"this choice is determined by init={path}; only single keys of the group can change"
    errors = set_keys(taken, of_network, why)
    now = flat(taken)
    problem = (
        f"this key changes the network parameters, which must match init={path}; leave the key out"
    )
    for key in changed_keys(before, now):
        name = key.rpartition(".")[2]
        if key in SHAPING or name in SHAPING_NAMES or key.startswith("sizes."):
            errors.append(ConfigError(key, problem, shown(now.get(key))))
        elif _is_of_tokenizer(key, config.get("init_vocabulary")):
            why = f"has no effect, because the tokenizer is that of init={path}; leave the key out"
            errors.append(ConfigError(key, why, shown(now.get(key))))
    return taken, errors


def _is_of_tokenizer(key: str, init_vocabulary: Any) -> bool:
    """Returns whether a key has no effect because the tokenizer of the initial model is used. With
    init_vocabulary=grow, subwords of a new tokenizer are added, which must read the same text and
    segment it by the same algorithm."""
    if init_vocabulary == "grow":
        common = ("lowercase", "normalization", "model", "byte_fallback")
        return key in [f"tokenizer.{name}" for name in common]
    return key.startswith("tokenizer.") and key != "tokenizer.sampling"
