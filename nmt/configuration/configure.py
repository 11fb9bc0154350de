"""Creates the validated settings of a command from its command line."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.configuration.check import mismatch
from nmt.configuration.compose import compose_partly, parse, resolve
from nmt.configuration.faults import ConfigError, ConfigErrors, broken, refuse, shown
from nmt.configuration.model_settings import (
    AlignSettings,
    AverageSettings,
    CheckAttentionSettings,
    CiteSettings,
    CompareSettings,
    EvaluateSettings,
    ExportSettings,
    IndexSettings,
    LabelSettings,
    ReportSettings,
    ScoreSettings,
    ServeSettings,
    TranslateSettings,
)
from nmt.configuration.saved_runs import (
    changed,
    errors_of_changes,
    repeated,
    saved_run,
    with_network_of,
)
from nmt.configuration.settings import Settings
from nmt.configuration.training_settings import (
    BacktranslateSettings,
    ClassifySettings,
    TrainingSettings,
    TrainSettings,
)
from nmt.foundation.errors import UserError
from nmt.storage import checkpoint as ckpt

COMMANDS: dict[str, type[Settings]] = {
    "train": TrainSettings,
    "classify": ClassifySettings,
    "backtranslate": BacktranslateSettings,
    "translate": TranslateSettings,
    "evaluate": EvaluateSettings,
    "score": ScoreSettings,
    "align": AlignSettings,
    "label": LabelSettings,
    "average": AverageSettings,
    "serve": ServeSettings,
    "export": ExportSettings,
    "index": IndexSettings,
    "check_attention": CheckAttentionSettings,
    "cite": CiteSettings,
    "report": ReportSettings,
    "compare": CompareSettings,
}
"""Settings class of each command, by the name of the command."""
AUTO = "auto"
"""Value of `resume` that resumes the run in `run_dir` if it has a checkpoint, or else starts it."""


def configure(command: str, overrides: Sequence[str], again: str | None = None) -> Settings:
    """Returns the validated settings of a command.

    command: name of the command, such as train
    overrides: command-line overrides, such as decoder=luong
    again: config.yaml of a run to repeat (--from); None composes a new configuration

    Raises ConfigErrors with all errors of the command line and the configuration.
    """
    kind = COMMANDS[command]
    refuse_sweep(overrides)
    if again is not None:
        if not issubclass(kind, TrainingSettings):
            raise UserError(f"--from {again}: not supported by nmt.{command}; use nmt.train")
        config, errors = repeated(again, overrides)
        return _effective(kind.of(config, also=errors), overrides)
    # Back-translation resumes from its own record, where resume= is an error.
    if issubclass(kind, TrainingSettings) and not issubclass(kind, BacktranslateSettings):
        resumes = [text for text in overrides if text.startswith("resume=")]
        changes = [text for text in overrides if text not in resumes]
        # If `resume` occurs several times, the last value takes precedence, as for every key.
        [*_, value] = [None, *(override.value() for override in parse(resumes)[0])]
        path = _path("resume", value)
        if path == AUTO:
            return _continued(command, [*changes, "resume=null"])
        if path is not None:
            config = changed(saved_run(path, command), command, changes)
            return _effective(kind.of({**config, "resume": path}), changes)
    composed, errors = compose_partly(command, overrides)
    config = resolve(composed)
    if errors:
        return kind.of(config, also=errors)  # raises a single ConfigErrors with all errors
    initial = _path("init", config.get("init"))
    if initial:
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


def _path(key: str, value: Any) -> str | None:
    """Returns the path in the value of a key.

    Raises ConfigErrors if the value is neither a string nor null.
    """
    problem = mismatch(value, str | None, key)
    refuse(broken((problem, key, problem, value)))
    return value


def _usual_data(faults: Sequence[ConfigError], overrides: Sequence[str]) -> Iterator[ConfigError]:
    """Yields an error that explains the errors in data keys, if the command line chooses no
    data."""
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
