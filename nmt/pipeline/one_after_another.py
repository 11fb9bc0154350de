"""Several runs of a command that does not train, one after another (-m)."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from nmt.configuration.compose import variants
from nmt.configuration.configure import configure
from nmt.configuration.faults import ConfigError, ConfigErrors
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)


def run_all(
    command: str, run: Callable[[Any], Any], overrides: Sequence[str], *, dry: bool = False
) -> None:
    """Runs a command with every combination of the values on its command line.

    command: name of the command
    run: function of its settings
    overrides: its command line, with several values for some keys
    dry: --dry-run, an error here

    Raises UserError for --dry-run and settings of Hydra, which belong to trainings; ConfigErrors
    for errors of all combinations; SystemExit if some combinations fail.
    """
    for text in [*overrides, *(["--dry-run"] if dry else [])]:
        if text.startswith(("hydra", "--")):
            raise UserError(f"{text}: only for sweeps of commands that train")
    combinations = variants(overrides)
    refuse_common_errors(command, combinations)
    failed = False
    for combination in combinations:
        log.info("%s", " ".join(combination))
        try:
            run(configure(command, combination))
        except UserError as error:
            log.error("%s", error)
            failed = True
    if failed:
        raise SystemExit(1)


def refuse_common_errors(command: str, combinations: Sequence[Sequence[str]]) -> None:
    """Raises ConfigErrors for the errors that all combinations share."""
    errors = [errors_of(command, combination) for combination in combinations]
    # An error of some combinations alone does not stop the others.
    common = [error for error in errors[0] if all(error in others for others in errors)]
    if common:
        raise ConfigErrors(common)


def errors_of(command: str, overrides: Sequence[str]) -> tuple[ConfigError, ...]:
    """Errors of one configuration."""
    try:
        configure(command, overrides)
    except ConfigErrors as error:
        return error.faults
    return ()
