"""From the command line to a command's settings: composed once, checked once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.configuration.check import mismatch
from nmt.configuration.commands import COMMANDS
from nmt.configuration.compose import PartialConfig, compose_unresolved, options, parse, resolve
from nmt.configuration.faults import ConfigError, ConfigErrors, shown, unknown
from nmt.configuration.settings import Settings
from nmt.configuration.training_settings import TrainingSettings
from nmt.pipeline.fine_tuning import with_network_of
from nmt.storage import checkpoint as ckpt
from nmt.storage.checkpoint import Checkpoint

FIXED = ("trainer.ema", "optimizer._target_", "objective._target_", "search._target_")
"""Keys of those groups that may not."""
CHOSEN_ANEW = ("search", "metric")
"""Groups of which another choice may be taken: no update depends on them."""
CHANGEABLE = (
    "trainer", "optimizer", "objective", "search", "metric", "choose_by", "translation", "device", "max_validation",
)  # fmt: skip
"""Keys and groups that may change when a run goes on; what else is in a configuration made its weights or its data."""


def configure(command: str, overrides: Sequence[str]) -> Settings:
    """The settings of a command. Raises ConfigErrors listing everything that is wrong with the command line and with
    the rest of the configuration."""
    kind = COMMANDS[command]
    several = swept(overrides)
    if several:
        raise ConfigErrors(several)
    if issubclass(kind, TrainingSettings) and command != "backtranslate":
        path, changes = _resumed(overrides)
        if path is not None:
            return _useful(
                kind.of({**changed(saved_run(path, command), command, changes), "resume": path}),
                changes,
            )
    try:
        config = compose_unresolved(command, overrides)
    except PartialConfig as wrong:
        return kind.of(
            resolve(wrong.rest), also=wrong.faults
        )  # raises: what was typed has faults already
    plain = resolve(config)
    if plain.get("init"):
        _check_path("init", plain["init"])
        plain, found = with_network_of(plain, plain["init"], overrides)
        return _useful(kind.of(plain, also=found), overrides)
    try:
        settings = kind.of(plain)
    except ConfigErrors as wrong:
        raise ConfigErrors([*wrong.faults, *_no_data_chosen(wrong.faults, overrides)]) from None
    return _useful(settings, overrides)


def _no_data_chosen(faults: Sequence[ConfigError], overrides: Sequence[str]) -> list[ConfigError]:
    """What is wrong if keys of files are typed, and no data set that has them."""
    typed = {override.key_or_group for override in parse(overrides)[0]}
    of_data = any(fault.key.startswith("data.") for fault in faults)
    if not of_data or typed & {"data", "experiment"}:
        return []
    return [
        ConfigError(
            "data",
            "no data set is chosen, so this is the usual one; for your own files add data=text, tsv, csv …",
        )
    ]


def swept(overrides: Sequence[str]) -> list[ConfigError]:
    """Faults for keys with several values, which only a sweep has."""
    why = "several values make a sweep: add -m; a list is written in brackets, {}"
    return [
        ConfigError(text, why.format(f"{key}=[{value}]"))
        for text in overrides
        if any(override.is_sweep_override() for override in parse([text])[0])
        for key, _, value in [text.partition("=")]
    ]


def _useful(settings: Settings, overrides: Sequence[str]) -> Settings:
    """The same settings. Raises ConfigErrors for what was typed and would change nothing."""
    typed, idle = parse(overrides)[0], settings.idle()
    found = [
        ConfigError(key, f"has no effect here: {idle[key]}", shown(override.value()))
        for override in typed
        if (key := override.key_or_group) in idle and not override.is_sweep_override()
    ]
    if found:
        raise ConfigErrors(found)
    return settings


def _resumed(overrides: Sequence[str]) -> tuple[str | None, list[str]]:
    """The run directory given by resume= (None if not given), and all other overrides."""
    parsed, _ = parse([text for text in overrides if text.startswith("resume=")])
    others = [text for text in overrides if not text.startswith("resume=")]
    path = parsed[-1].value() if parsed else None
    _check_path("resume", path)
    return path, others


def _check_path(key: str, value: Any) -> None:
    """Raises ConfigErrors unless a folder is named, or none."""
    problem = mismatch(value, str | None)
    if problem:
        raise ConfigErrors([ConfigError(key, problem, shown(value))])


def saved_run(path: str, command: str) -> Checkpoint:
    """The checkpoint to resume a run from. Raises UserError if there is none, or if another command wrote it."""
    file = Path(path) / ckpt.LAST
    if not Path(path).is_dir():
        raise ConfigErrors(
            [ConfigError("resume", "there is no such folder; there is nothing to go on with", path)]
        )
    if not file.is_file():
        raise ConfigErrors(
            [ConfigError("resume", f"no {ckpt.LAST} in it; there is nothing to go on with", path)]
        )
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
    parsed, found = parse(changes)
    for override in parsed:
        key, value = override.key_or_group, override.value()
        group, _, name = key.partition(".")
        node = config.get(group) if name else config
        if key in CHOSEN_ANEW and value in options(key):
            config[key] = resolve(compose_unresolved(command, [f"{key}={value}"]))[key]
        elif key == "run_dir":
            found.append(
                ConfigError(
                    key,
                    "a run goes on in its own folder, the one of resume=: leave it out",
                    shown(value),
                )
            )
        elif (
            group not in CHANGEABLE
            or key in FIXED
            or (not name and isinstance(config.get(group), dict))
        ):
            why = "cannot change when resuming (the weights and the state were made with the old value)"
            groups = ", ".join(f"{group}={'|'.join(options(group))}" for group in CHOSEN_ANEW)
            what = f"{why}. What can: {groups}, and single keys of {', '.join(CHANGEABLE)}"
            found.append(ConfigError(f"{key}={shown(value)}", what))
        elif not isinstance(node, dict) or (name or group) not in node:
            found.append(
                unknown(key, sorted(set(node) - {"_target_"}) if isinstance(node, dict) else [])
            )
        else:
            node[name or group] = value
    if found:
        raise ConfigErrors(found)
    return config
