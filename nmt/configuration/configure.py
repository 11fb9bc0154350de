"""From the command line to a command's settings: composed once, checked once."""

from collections.abc import Sequence
from typing import Any

from nmt.configuration.check import mismatch
from nmt.configuration.commands import COMMANDS
from nmt.configuration.compose import compose_partly, parse, resolve
from nmt.configuration.faults import ConfigError, ConfigErrors, shown
from nmt.configuration.saved_runs import changed, saved_run, with_network_of
from nmt.configuration.settings import Settings
from nmt.configuration.training_settings import BacktranslateSettings, TrainingSettings


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
    composed, errors = compose_partly(command, overrides)
    config = resolve(composed)
    if errors:
        return kind.of(config, also=errors)  # raises ConfigErrors: the rest may have more errors
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
