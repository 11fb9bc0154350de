"""From the command line to a command's settings: composed once, checked once."""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.configuration.check import mismatch
from nmt.configuration.commands import COMMANDS
from nmt.configuration.compose import PartialConfig, compose_unresolved, options, parse, resolve
from nmt.configuration.faults import ConfigError, ConfigErrors, shown, unknown
from nmt.configuration.initial import with_network_of
from nmt.configuration.settings import Settings
from nmt.configuration.training_settings import BacktranslateSettings, TrainingSettings
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


def configure(command: str, overrides: Sequence[str]) -> Settings:
    """The settings of a command. Raises ConfigErrors listing everything that is wrong with the command line and with
    the rest of the configuration."""
    kind = COMMANDS[command]
    several = swept(overrides)
    if several:
        raise ConfigErrors(several)
    if issubclass(kind, TrainingSettings) and not issubclass(kind, BacktranslateSettings):
        path, changes = _resumed(overrides)
        if path is not None:
            config = changed(saved_run(path, command), command, changes)
            return _effective(kind.of({**config, "resume": path}), changes)
    try:
        config = resolve(compose_unresolved(command, overrides))
    except PartialConfig as error:
        # Raises ConfigErrors: the command line has errors already, and the rest may have more.
        return kind.of(resolve(error.rest), also=error.faults)
    if config.get("init"):
        _check_path("init", config["init"])
        config, errors = with_network_of(config, config["init"], overrides)
        return _effective(kind.of(config, also=errors), overrides)
    try:
        settings = kind.of(config)
    except ConfigErrors as error:
        raise ConfigErrors([*error.faults, *_usual_data(error.faults, overrides)]) from None
    return _effective(settings, overrides)


def _usual_data(faults: Sequence[ConfigError], overrides: Sequence[str]) -> list[ConfigError]:
    """An error for keys of files without a data set that has them."""
    keys = {override.key_or_group for override in parse(overrides)[0]}
    of_data = any(fault.key.startswith("data.") for fault in faults)
    if not of_data or keys & {"data", "experiment"}:
        return []
    return [
        ConfigError(
            "data",
            "no data set is chosen, so this is the usual one; for your own files add data=text, tsv, csv …",
        )
    ]


def swept(overrides: Sequence[str]) -> list[ConfigError]:
    """Errors for keys with several values, which only a sweep has."""
    errors = []
    for text in overrides:
        if any(override.is_sweep_override() for override in parse([text])[0]):
            key, _, value = text.partition("=")
            errors.append(
                ConfigError(
                    text,
                    f"several values make a sweep: add -m; a list is written in brackets, {key}=[{value}]",
                )
            )
    return errors


def _effective(settings: Settings, overrides: Sequence[str]) -> Settings:
    """The same settings. Raises ConfigErrors for overrides without effect."""
    idle = settings.idle()
    errors = [
        ConfigError(
            override.key_or_group,
            f"has no effect here: {idle[override.key_or_group]}",
            shown(override.value()),
        )
        for override in parse(overrides)[0]
        if override.key_or_group in idle and not override.is_sweep_override()
    ]
    if errors:
        raise ConfigErrors(errors)
    return settings


def _resumed(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """The run directory given by resume= (None if not given), and all other overrides."""
    resumes = [text for text in overrides if text.startswith("resume=")]
    parsed, _ = parse(resumes)
    path = parsed[-1].value() if parsed else None
    _check_path("resume", path)
    return path, [text for text in overrides if text not in resumes]


def _check_path(key: str, value: Any) -> None:
    """Raises ConfigErrors unless the value is a text or null."""
    problem = mismatch(value, str | None)
    if problem:
        raise ConfigErrors([ConfigError(key, problem, shown(value))])


def saved_run(path: str, command: str) -> Checkpoint:
    """The checkpoint to resume a run from. Raises UserError if it is not found, or if another command wrote it."""
    file = Path(path) / ckpt.LAST
    if not file.is_file():
        what = f"no {ckpt.LAST} in it" if Path(path).is_dir() else "there is no such folder"
        raise ConfigErrors([ConfigError("resume", f"{what}; there is nothing to go on with", path)])
    saved = ckpt.read(file)
    ckpt.check_kind(saved, command)
    return saved


def changed(saved: Checkpoint, command: str, changes: Sequence[str]) -> Mapping[str, Any]:
    """The configuration of a run with some of its values changed. What a file says is data: no reference in it is followed.
    Raises ConfigErrors for what cannot change."""
    config = copy.deepcopy(saved.meta.get("config"))
    if not isinstance(config, dict):
        raise ConfigErrors(
            [ConfigError("resume", "holds no configuration; it is damaged", str(saved.path))]
        )
    parsed, errors = parse(changes)
    for override in parsed:
        key, value = override.key_or_group, override.value()
        if key in CHOSEN_ANEW and value in options(key):
            config[key] = resolve(compose_unresolved(command, [f"{key}={value}"]))[key]
            continue
        error = _unchangeable(config, key, value)
        if error is not None:
            errors.append(error)
            continue
        group, _, name = key.partition(".")
        node = config[group] if name else config
        node[name or group] = value
    if errors:
        raise ConfigErrors(errors)
    return config


def _unchangeable(config: Mapping[str, Any], key: str, value: Any) -> ConfigError | None:
    """The error of a key that a resumed run does not have, or that must not change; None if it may."""
    if key == "run_dir":
        return ConfigError(
            key, "a run goes on in its own folder, the one of resume=: leave it out", shown(value)
        )
    group, _, name = key.partition(".")
    whole_group = not name and isinstance(config.get(group), dict)
    if group not in CHANGEABLE or key in FIXED or whole_group:
        choices = ", ".join(f"{group}={'|'.join(options(group))}" for group in CHOSEN_ANEW)
        return ConfigError(
            key,
            "cannot change when resuming (the weights and the state were made with the old value). "
            f"What can: {choices}, and single keys of {', '.join(CHANGEABLE)}",
            shown(value),
        )
    node = config.get(group) if name else config
    if not isinstance(node, dict):
        return unknown(key, [])
    return None if (name or group) in node else unknown(key, {*node} - {"_target_"})
