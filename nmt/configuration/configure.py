"""Creates the validated settings of a command from its command line.

The configuration of a training run may come from a saved run. The command resumes the run
(resume=), repeats it (--from), or starts with its trained network (init=).
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from nmt.components import NETWORK
from nmt.configuration.compose import (
    apply,
    compose,
    compose_partly,
    options,
    parse,
    reason,
    resolve,
)
from nmt.configuration.model_settings import (
    AlignSettings,
    EvaluateSettings,
    LabelSettings,
    ScoreSettings,
    ServeSettings,
    TranslateSettings,
)
from nmt.configuration.settings import Settings, settings_of
from nmt.configuration.training_settings import (
    BacktranslateSettings,
    ClassifySettings,
    TrainingSettings,
    TrainSettings,
)
from nmt.foundation.configurations import NOT_LEARNT, changed_keys, flat
from nmt.foundation.errors import UsageError
from nmt.foundation.extras import imported
from nmt.foundation.part_limits import ConfigError, ConfigErrors, broken, refuse, shown
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint
from nmt.storage.upgrade import with_renamed_targets

COMMANDS: dict[str, type[Settings] | str] = {
    "train": TrainSettings,
    "classify": ClassifySettings,
    "backtranslate": BacktranslateSettings,
    "translate": TranslateSettings,
    "evaluate": EvaluateSettings,
    "score": ScoreSettings,
    "align": AlignSettings,
    "label": LabelSettings,
    "serve": ServeSettings,
    "average": "nmt.storage.averaging:average_checkpoints",
    "export": "nmt.pipeline.model_commands:export",
    "index": "nmt.pipeline.model_commands:index",
    "check_attention": "nmt.analysis.attention_check:print_verdicts",
    "cite": "nmt.analysis.citations:print_papers",
    "report": "nmt.analysis.run_report:report_folders",
    "compare": "nmt.pipeline.model_commands:compare",
}
"""Maps each command to the class of its settings, or to a function as `module:function`.

The keyword parameters of the function define the settings. It is imported when its command runs,
so that other commands start quickly.
"""
AUTO = "auto"
"""Value of `resume` that resumes the run in `run_dir` if it has a checkpoint, or else starts it."""
FIXED = ("trainer.ema", "optimizer._target_", "objective._target_", "search._target_")
"""Keys that must not change on resume, although other keys of their groups may change."""
CHOSEN_ANEW = ("search", "metric")
"""Groups whose choice may change on resume, because training does not depend on these groups."""
CHANGEABLE = (
    "trainer", "optimizer", "objective", "search", "metric", "choose_by", "translation", "device",
    "max_validation", "threads", "final_test",
    "time_budget",
)  # fmt: skip
"""Keys and groups that may change on resume; all other keys determine the weights or the data."""
OF_MODEL = (*NETWORK, "sizes", "tokenizer")
"""Keys and groups that a run with init= takes from the initial model."""
SHAPING = ("model.copy", "model.lexical", "model.lexicon", "model.lexicon_use")
"""Keys of the model that add or remove network parameters, and cannot change with init=."""


def settings_class(command: str) -> type[Settings]:
    """Returns the settings class of a command."""
    kind = COMMANDS[command]
    return settings_of(imported(kind)) if isinstance(kind, str) else kind


def configure(command: str, overrides: Sequence[str], again: str | None = None) -> Settings:
    """Returns the validated settings of a command.

    command: name of the command, such as train
    overrides: command-line overrides, such as decoder=luong
    again: config.yaml of a run to repeat (--from); None composes a new configuration

    Raises ConfigErrors with all errors of the command line and the configuration.
    """
    kind = settings_class(command)
    refuse_sweep(overrides)
    if again is not None:
        if not issubclass(kind, TrainingSettings):
            raise UsageError(f"--from {again}: not supported by nmt.{command}; use nmt.train")
        config, errors = repeated(again, overrides)
        return _effective(kind.of(config, also=errors), overrides)
    # Back-translation resumes from its own record, where resume= is an error.
    if issubclass(kind, TrainingSettings) and not issubclass(kind, BacktranslateSettings):
        resumes = [text for text in overrides if text.startswith("resume=")]
        changes = [text for text in overrides if text not in resumes]
        # If `resume` occurs several times, the last value takes precedence, as for every key.
        [*_, value] = [None, *(override.value() for override in parse(resumes)[0])]
        if value == AUTO:
            return _continued(command, [*changes, "resume=null"])
        if isinstance(value, str):
            config = changed(saved_run(value, command), command, changes)
            return _effective(kind.of({**config, "resume": value}), changes)
    composed, errors = compose_partly(command, overrides)
    config = resolve(composed)
    if errors:
        return kind.of(config, also=errors)  # raises a single ConfigErrors with all errors
    initial = config.get("init")
    if isinstance(initial, str):
        config, errors = with_network_of(config, initial, overrides)
    try:
        return _effective(kind.of(config, also=errors), overrides)
    except ConfigErrors as error:
        raise ConfigErrors([*error.faults, *_usual_data(error.faults, overrides)]) from None


def _continued(command: str, overrides: Sequence[str]) -> Settings:
    """Returns the settings of a run with resume=auto, which resumes if the run folder has a
    checkpoint."""
    settings = configure(command, overrides)
    folder = getattr(settings, "run_dir", None)
    refuse(broken((folder is None, "resume", "needs the run folder; add run_dir=DIR", AUTO)))
    if not (Path(str(folder)) / ckpt.LAST).is_file():
        return settings
    refuse(errors_of_changes(saved_run(str(folder), command), settings.values))
    return replace(settings, resume=folder)  # type: ignore[call-arg]  # of training runs


def _usual_data(faults: Sequence[ConfigError], overrides: Sequence[str]) -> Iterator[ConfigError]:
    """Yields an error if data keys are wrong because the command line chooses no data set.

    faults: errors of the configuration
    overrides: command-line overrides
    """
    keys = {override.key_or_group for override in parse(overrides)[0]}
    missing = any(fault.key.startswith("data.") for fault in faults)
    return broken(
        (
            missing and not keys & {"data", "experiment"},
            "data",
            "not set, so the default data set is used; for your own files, add data=text, tsv or "
            "csv",
        )
    )


def refuse_sweep(overrides: Sequence[str]) -> None:
    """Raises ConfigErrors if a key has several values, which only sweeps accept."""
    why = (
        "this key has several values, which only a sweep (-m) accepts. Write a list as "
        "{0}=[{1}]; write text with commas as {0}='\"{1}\"'"
    )
    refuse(
        ConfigError(text, why.format(*text.split("=", 1)))
        for text in overrides
        if any(override.is_sweep_override() for override in parse([text])[0])
    )


def _effective(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Returns the settings unchanged. Raises ConfigErrors if an override has no effect."""
    idle = settings.idle()
    refuse(
        ConfigError(
            override.key_or_group,
            f"has no effect in this configuration ({idle[override.key_or_group]}); leave this key "
            "out",
            shown(override.value()),
        )
        for override in parse(overrides)[0]
        if override.key_or_group in idle and not override.is_sweep_override()
    )
    return settings


def saved_run(path: str, command: str) -> Checkpoint:
    """Returns the checkpoint from which a run is resumed.

    path: run folder
    command: command of the run

    Raises UserError if the checkpoint does not exist, belongs to another command, or needs plugins
    that are not permitted.
    """
    file = Path(path) / ckpt.LAST
    nothing = "the run folder was not found, so the training cannot be resumed"
    if Path(path).is_dir():
        nothing = (
            f"the folder has no {ckpt.LAST}, so the training cannot be resumed. If the "
            f"training ended before its first save, repeat the first command with run_dir={path} "
            "resume=auto, or delete the folder"
        )
    refuse(broken((not file.is_file(), "resume", nothing, path)))
    return ckpt.read_model(str(file), "resume", command)


def errors_of_changes(saved: Checkpoint, config: Mapping[str, Any]) -> list[ConfigError]:
    """Returns an error for each changed key that must not change on resume.

    saved: checkpoint of the run
    config: configuration for resuming
    """
    before = flat(saved.config)
    now = flat(config)
    errors = []
    for key in changed_keys(before, now):
        group = key.partition(".")[0]
        is_free = group in (*CHOSEN_ANEW, *NOT_LEARNT) or (group in CHANGEABLE and key not in FIXED)
        if not is_free:
            problem = (
                "this setting cannot change on resume, because the saved weights and state depend "
                f"on it; its value was {shown(before.get(key))}. Restore the value, or choose "
                "another run_dir"
            )
            errors.append(ConfigError(key, problem, shown(now.get(key))))
    return errors


def repeated(path: str, changes: Sequence[str]) -> tuple[dict[str, Any], list[ConfigError]]:
    """Returns the configuration for repeating a run with changed values, and the errors in the
    changes.

    path: config.yaml of the run, or the run folder
    changes: overrides of single keys

    Raises ConfigErrors if the file cannot be read.
    """
    file = Path(path) / "config.yaml" if Path(path).is_dir() else Path(path)
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = getattr(error, "strerror", None) or reason(error)
        problem = f"cannot be read ({why}); name the config.yaml of a run"
        raise ConfigErrors([ConfigError("", f"--from {path}: {problem}")]) from error
    if not isinstance(config, dict) or "data" not in config:
        raise ConfigErrors([ConfigError("", f"--from {path}: not the config.yaml of a run")])
    # The repeated run gets a new folder and is not part of a sweep.
    new = {"run_dir": None, "resume": None, "sweep": None, "repeats": str(file.parent)}
    config = with_renamed_targets({**config, **new})

    only_keys = "--from accepts single keys only; to change a group, give the complete command"
    return config, set_keys(config, changes, only_keys)


def changed(saved: Checkpoint, command: str, changes: Sequence[str]) -> dict[str, Any]:
    """Returns the configuration of a saved run with changed values.

    saved: checkpoint of the run
    command: command of the run
    changes: command-line overrides

    ${references} in a checkpoint are not resolved.

    Raises ConfigErrors if a key must not change.
    """
    config = copy.deepcopy(saved.config)  # leaves the checkpoint unchanged
    single = []
    for text in changes:
        group, value = text.partition("=")[::2]
        if group in CHOSEN_ANEW and value in options(group):
            # A new choice has other keys, so the saved values of the group are dropped.
            config[group] = compose(command, [text])[group]
        else:
            single.append(text)
    choices = ", ".join(f"{name}={'|'.join(options(name))}" for name in CHOSEN_ANEW)
    why = (
        "this setting cannot change on resume, because the saved weights and state depend on it; "
        f"allowed are {choices}, and single keys of {', '.join(CHANGEABLE)}"
    )
    errors = set_keys(config, single, why)
    folder = config.get("run_dir")
    of_folder = "cannot change on resume, since resume= names the run folder; leave this key out"
    moved = folder != saved.config.get("run_dir")
    errors += broken((moved, "run_dir", of_folder, folder))
    refuse(errors + errors_of_changes(saved, config))
    return config


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
    for key in changed_keys(before, now):
        if key in SHAPING or key.startswith("sizes."):
            problem = (
                f"this key changes the network parameters, which must match init={path}; leave "
                "the key out"
            )
            errors.append(ConfigError(key, problem, shown(now.get(key))))
    return taken, errors


def set_keys(config: dict[str, Any], overrides: Sequence[str], why: str) -> list[ConfigError]:
    """Sets single keys of a configuration in place, and returns the errors.

    config: configuration, which is changed in place
    overrides: overrides of single keys, such as trainer.epochs=5
    why: reason why the choice of a group cannot change
    """
    parsed, errors = parse(overrides)
    for override in parsed:
        key = override.key_or_group
        if options(key):
            errors.append(ConfigError(key, why, shown(override.value())))
        else:
            errors += apply(config, [override])
    return errors
