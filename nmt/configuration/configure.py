"""Creates the validated settings of a command from its command line.

The configuration of a training run may come from a saved run. The command resumes the run
(resume=), repeats it (--from), or starts with its trained network (init=).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.components import make
from nmt.configuration.compose import compose_partly, resolve
from nmt.configuration.overrides import parse, refuse_sweep
from nmt.configuration.previous_runs import (
    changed,
    errors_of_changes,
    repeated,
    saved_run,
    with_network_of,
)
from nmt.configuration.settings import Settings, settings_of
from nmt.configuration.training_settings import BacktranslateSettings, TrainingSettings
from nmt.foundation.errors import UsageError
from nmt.foundation.extras import imported
from nmt.foundation.part_limits import ConfigError, ConfigErrors, broken, refuse, shown
from nmt.storage.checkpoint import LAST

COMMANDS = {
    "train": "nmt.configuration.training_settings:TrainSettings",
    "classify": "nmt.configuration.training_settings:ClassifySettings",
    "backtranslate": "nmt.configuration.training_settings:BacktranslateSettings",
    "translate": "nmt.configuration.translation_settings:TranslateSettings",
    "evaluate": "nmt.configuration.translation_settings:EvaluateSettings",
    "serve": "nmt.configuration.translation_settings:ServeSettings",
    "score": "nmt.configuration.model_settings:ScoreSettings",
    "align": "nmt.configuration.model_settings:AlignSettings",
    "label": "nmt.configuration.model_settings:LabelSettings",
    "average": "nmt.storage.averaging:average_checkpoints",
    "export": "nmt.pipeline.model_commands:export",
    "index": "nmt.pipeline.model_commands:index",
    "check_attention": "nmt.analysis.attention_check:print_verdicts",
    "cite": "nmt.analysis.citations:print_papers",
    "report": "nmt.analysis.run_report:report_folders",
    "compare": "nmt.pipeline.model_commands:compare",
}
"""Maps each command to the class of its settings, or to a function whose keyword parameters define
the settings, as `module:name`.

The module is imported when its command runs, so that other commands start quickly.
"""
PATHS = (
    "run_dir", "resume", "init", "model", "input", "output", "source", "target", "reference",
    "prefix", "constraints",
)  # fmt: skip
"""Keys whose value is a path, or null. An empty path would mean the current folder."""
AUTO = "auto"
"""Value of `resume` that resumes the run in `run_dir` if it has a checkpoint, or else starts it."""


def settings_class(command: str) -> type[Settings]:
    """Returns the settings class of a command."""
    kind: Any = imported(COMMANDS[command])
    return kind if isinstance(kind, type) else settings_of(kind)


def configure(command: str, overrides: Sequence[str], again: str | None = None) -> Settings:
    """Returns the validated settings of a command.

    command: name of the command, such as train
    overrides: command-line overrides, such as decoder=luong
    again: config.yaml of a run to repeat (--from); None composes a new configuration

    Raises ConfigErrors with all errors of the command line and the configuration.
    """
    kind = settings_class(command)
    refuse_sweep(overrides)
    refuse(
        ConfigError(key, "is empty; name a folder or file, or leave this key out")
        for key in PATHS
        if any(o.key_or_group == key and o.value() == "" for o in parse(overrides)[0])
    )
    if again is not None and not issubclass(kind, TrainingSettings):
        raise UsageError(f"--from {again}: not supported by nmt.{command}; use nmt.train")
    # Back-translation resumes from its own record, where resume= is an error.
    if issubclass(kind, TrainingSettings) and not issubclass(kind, BacktranslateSettings):
        resumes = [text for text in overrides if text.lstrip("+").startswith("resume=")]
        changes = [text for text in overrides if text not in resumes]
        # If `resume` occurs several times, the last value takes precedence, as for every key.
        [*_, value] = [None, *(override.value() for override in parse(resumes)[0])]
        if value == AUTO:
            return _continued(command, [*changes, "resume=null"], again)
        if isinstance(value, str):
            with_from = "cannot be combined with --from; leave out --from to resume that run"
            refuse(broken((again is not None, "resume", with_from, value)))
            config, errors = changed(saved_run(value, command), command, changes)
            return _effective(kind.of({**config, "resume": value}, also=errors), changes)
    if again is not None:
        config, errors = repeated(again, overrides, command)
        return _effective(kind.of(config, also=errors), overrides)
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


def configure_single(command: str, overrides: Sequence[str], again: str | None = None) -> Settings:
    """Returns the validated settings of a command that runs once, as `configure` does.

    Raises ConfigErrors also for settings that only sweeps have.
    """
    refuse(
        ConfigError(
            text,
            "supported only by sweeps (-m); for a single training, set the run folder with "
            "run_dir=DIR",
        )
        for text in overrides
        if text.lstrip("+~").startswith("hydra")
    )
    settings = configure(command, overrides, again)
    sweep = getattr(settings, "sweep", None)
    several = sweep and not make({"sweep": sweep}, "sweep").single
    add = "this sweep has several runs; add -m, or set sweep=grid for a single run"
    refuse(broken((several, "sweep", add)))
    return settings


def _continued(command: str, overrides: Sequence[str], again: str | None) -> Settings:
    """Returns the settings of a run with resume=auto, which resumes if the run folder has a
    checkpoint."""
    settings = configure(command, overrides, again)
    folder = getattr(settings, "run_dir", None)
    refuse(broken((folder is None, "resume", "needs the run folder; add run_dir=DIR", AUTO)))
    if not (Path(str(folder)) / LAST).is_file():
        return settings
    saved = saved_run(str(folder), command)
    # Keys that are newer than the checkpoint have their defaults, as with resume=DIR.
    earlier = settings_class(command).of(saved.config)
    complete = replace(saved, meta={**saved.meta, "config": earlier.values})
    refuse(errors_of_changes(complete, settings.values))
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


def _effective(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Checks that every override has an effect, and returns the settings unchanged.

    Raises ConfigErrors if an override has no effect.
    """
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
