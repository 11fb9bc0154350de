"""Runs a non-training command once for each combination of values (-m), in sequence."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, product
from typing import Any

from nmt.configuration.configure import configure
from nmt.configuration.overrides import parse, values_of
from nmt.configuration.settings import Settings
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.part_limits import ConfigError, ConfigErrors, refuse
from nmt.foundation.processes import prepare_process

log = logging.getLogger(__name__)


def run_all(
    command: str, run: Callable[[Any], Any], overrides: Sequence[str], *, dry: bool = False
) -> None:
    """Runs a command with every combination of the values on its command line.

    command: name of the command, such as translate
    run: function that runs the command with the given settings
    overrides: command-line overrides, with several values for some keys
    dry: whether --dry-run is given, which is an error

    Raises UserError for --dry-run and Hydra settings, which only training commands accept. Raises
    ConfigErrors if all combinations are invalid, and SystemExit if some combinations fail.
    """
    for text in [*overrides, *(["--dry-run"] if dry else [])]:
        if text.lstrip("+~").startswith("hydra") or text.startswith("--"):
            raise UsageError(
                f"{text}: only sweeps of training commands (such as nmt.train -m) support this "
                f"setting; leave {text} out"
            )
    combinations = variants(overrides)
    first_valid(command, combinations)
    _refuse_shared_output(command, combinations)
    failed = False
    for combination in combinations:
        log.info("running nmt.%s %s", command, " ".join(combination))
        try:
            settings = configure(command, combination)
            prepare_process(settings.threads)
            run(settings)
        except UserError as error:
            log.error("%s", error)
            failed = True  # a failed combination does not stop the next ones
    if failed:
        raise SystemExit(1)


def _refuse_shared_output(command: str, combinations: Sequence[Sequence[str]]) -> None:
    """Raises ConfigErrors if several combinations write the same file.

    command: name of the command, such as translate
    combinations: one list of overrides for each combination
    """
    written: Counter[tuple[str, str, Any]] = Counter()
    for combination in combinations:
        with contextlib.suppress(UserError):  # reported when the combination runs
            settings = configure(command, combination)
            names = {key: getattr(settings, key, None) for key in settings.written}
            # With `job`, several commands write parts of the same files.
            job = getattr(settings, "job", None)
            written.update((key, str(name), job) for key, name in names.items() if name)
    why = "{} combinations of values would write this file; run single commands"
    refuse(
        ConfigError(key, why.format(count), name)
        for (key, name, _), count in written.items()
        if count > 1
    )


def first_valid(command: str, combinations: Sequence[Sequence[str]]) -> Settings:
    """Returns the settings of the first valid combination of the values on a command line with -m.

    command: name of the command, such as translate
    combinations: one list of overrides for each combination

    Raises ConfigErrors if no combination is valid. The exception contains the errors common to all
    combinations. If no error is common to all, it contains all errors.
    """
    errors: list[Sequence[ConfigError]] = []
    for combination in combinations:
        try:
            return configure(command, combination)
        except UserError as error:
            errors.append(getattr(error, "faults", (ConfigError("", str(error)),)))
    common = [error for error in errors[0] if all(error in others for others in errors)]
    raise ConfigErrors(common or list(dict.fromkeys(chain.from_iterable(errors))))


def variants(overrides: Sequence[str]) -> list[list[str]]:
    """Returns a list of overrides for every combination of values on a command line.

    Raises ConfigErrors if an override is invalid.
    """
    parsed, errors = parse(overrides)
    refuse(errors)
    alternatives = [
        [f"{override.get_key_element()}={value}" for value in values_of(override)]
        if override.is_sweep_override()
        else [text]
        for text, override in zip(overrides, parsed, strict=True)
    ]
    return [list(combination) for combination in product(*alternatives)]
