"""Several runs of a command that does not train, one after another (-m)."""

import logging
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Any

from nmt.configuration.compose import parse
from nmt.configuration.configure import configure
from nmt.configuration.faults import ConfigError, ConfigErrors, refuse
from nmt.configuration.settings import Settings
from nmt.foundation.errors import UserError

log = logging.getLogger(__name__)


def run_all(
    command: str, run: Callable[[Any], Any], overrides: Sequence[str], *, dry: bool = False
) -> None:
    """Runs a command with every combination of the values on its command line.

    command: name of the command
    run: function of its settings
    overrides: command line, with several values for some keys
    dry: --dry-run, an error here

    Raises UserError for --dry-run and settings of Hydra, which belong to trainings; ConfigErrors
    for errors of all combinations; SystemExit if some combinations fail.
    """
    for text in [*overrides, *(["--dry-run"] if dry else [])]:
        if text.startswith(("hydra", "--")):
            raise UserError(f"{text}: only for sweeps of commands that train")
    combinations = variants(overrides)
    first_valid(command, combinations)
    failed = False
    for combination in combinations:
        log.info("%s", " ".join(combination))
        try:
            run(configure(command, combination))
        except UserError as error:
            log.error("%s", error)
            failed = True  # the other combinations still run
    if failed:
        raise SystemExit(1)


def first_valid(command: str, combinations: Sequence[Sequence[str]]) -> Settings:
    """The settings of the first combination without errors.

    command: name of the command
    combinations: command lines

    Raises ConfigErrors if there is none: the errors that all combinations share, or else all.
    """
    errors: list[Sequence[ConfigError]] = []
    for combination in combinations:
        try:
            return configure(command, combination)
        except ConfigErrors as error:
            errors.append(error.faults)
    common = [error for error in errors[0] if all(error in others for others in errors)]
    raise ConfigErrors(common or list(dict.fromkeys(chain.from_iterable(errors))))


def variants(overrides: Sequence[str]) -> list[list[str]]:
    """The command lines of all runs of a sweep. Raises ConfigErrors for invalid overrides."""
    parsed, errors = parse(overrides)
    refuse(errors)
    alternatives = [
        [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [text]
        for text, override in zip(overrides, parsed, strict=True)
    ]
    return [list(combination) for combination in product(*alternatives)]
