"""Implements the `main` function of every command: composes settings, runs the command and reports
errors.

Heavy modules are imported inside functions, so that --help and shell completion start quickly.
Hydra implements shell completion.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from nmt import __version__
from nmt.configuration.command_words import flags_and_words, no_such_flag, space_errors, with_key
from nmt.configuration.compose import compose_partly
from nmt.configuration.help import help_of
from nmt.configuration.overrides import refuse_sweep
from nmt.configuration.yaml_files import hydra_main, search_beside
from nmt.foundation import plugins
from nmt.foundation.command_exit import with_exit_status
from nmt.foundation.errors import UsageError
from nmt.foundation.extras import imported, make_callable, resume_collections, with_settings
from nmt.foundation.json_log import choose_format
from nmt.foundation.part_limits import refuse
from nmt.foundation.processes import prepare_process
from nmt.foundation.torchrun import of_torchrun

SHELLS = ("bash", "zsh", "fish")
TOGETHER = ("train", "classify", "translate", "score", "align", "backtranslate")
"""Commands that can run in several processes under torchrun."""


def command(
    name: str,
    target: str,
    *,
    sweep: str | None = "nmt.pipeline.one_after_another:run_all",
    instead: Mapping[str, str] | None = None,
    python: str | None = None,
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Returns `run`, a function of the settings, and `main`, the entry point of the command line.

    name: name of the command and of its YAML file
    target: `module:function` that implements the command; it receives the settings named by its
        parameters
    sweep: `module:function` that runs all combinations of several values (-m); None if -m is not
        supported
    instead: maps a key of another command to that command, which runs if the key is set
    python: `module:function` called when the command's module is called in Python, as in
        nmt.train(…)

    `main` prints errors that the user can fix as messages without a traceback. The exit status is
    1, or the `exit_status` of the error's class, and 130 after an interruption.
    """
    # The command's function is imported when it is called, so that --help does not load torch.
    run = with_settings(target)
    if python is not None and f"nmt.{name}" in sys.modules:
        make_callable(sys.modules[f"nmt.{name}"], python)

    def main() -> None:
        gc.disable()  # collections would be a tenth of the start-up time
        try:
            with_exit_status(lambda: _dispatch(name, run, sweep, instead or {}))
        finally:
            gc.enable()

    return run, main


def _dispatch(
    name: str, run: Callable[[Any], Any], sweep: str | None, instead: Mapping[str, str]
) -> None:
    """Runs the action of a flag, such as --help, or the command itself."""
    flags, words = flags_and_words(sys.argv[1:])
    unknown_flags = [word for word in words if word.startswith("-")]
    overrides = with_key(name, [word for word in words if word not in unknown_flags])
    refuse(space_errors(words))
    choose_format("log=json" in overrides)  # holds for errors of the settings too
    keys = {override.partition("=")[0] for override in overrides if "=" in override}
    for key in keys & instead.keys():
        return importlib.import_module(f"nmt.{instead[key]}").main()
    for folder in flags.config_dir:
        search_beside(folder)
    plugins.permit(package for names in flags.plugins for package in names.split(","))
    if flags.version:
        print(f"nmt {__version__}")
    elif unknown_flags:
        refuse(map(no_such_flag, unknown_flags))
    elif flags.again is not None and (flags.help or flags.cfg is not None):
        raise UsageError(
            "--from: cannot be combined with --help or --cfg, which show the settings of a new "
            "run; the settings of the earlier run are in its config.yaml"
        )
    elif flags.cfg is not None and keys & {"resume", "init"}:
        raise UsageError(
            "--cfg: cannot be combined with resume or init, whose settings come from an earlier "
            "run; they are in the config.yaml of that run"
        )
    elif flags.help:
        print(help_of(name, words), end="")
    elif flags.cfg is not None:
        _print(name, overrides)
    elif flags.shell_completion:
        _complete(name)
    elif flags.multirun:
        if flags.again is not None:
            raise UsageError("--from: repeats a single run and cannot be combined with -m")
        _run_all(name, run, sweep, overrides, flags.dry_run)
    elif flags.dry_run:
        raise UsageError("--dry-run: supported only for sweeps, whose runs it lists; add -m")
    else:
        _run(name, run, overrides, flags.again)


def _run_all(
    command: str, run: Callable[[Any], Any], sweep: str | None, overrides: Sequence[str], dry: bool
) -> None:
    """Runs a command with all combinations of several values (-m).

    command: name of the command, such as train
    run: function that runs the command with the given settings
    sweep: `module:function` that executes the runs; None if the command does not support -m
    overrides: command-line overrides, such as decoder=luong
    dry: whether the runs are only listed

    Raises UsageError if the command does not support -m, or under torchrun.
    """
    if sweep is None:
        raise UsageError(
            f"-m: not supported by nmt.{command}, which consists of several runs; call the command "
            "once per combination, or sweep over nmt.train"
        )
    if of_torchrun().several:
        raise UsageError(
            "-m: not supported under torchrun, since every run of a sweep has its own process; "
            "start the sweep without torchrun"
        )
    prepare_process()
    run_all = imported(sweep)
    resume_collections()
    run_all(command, run, overrides, dry=dry)


def _print(command: str, overrides: Sequence[str]) -> None:
    """Prints the composed configuration of a single run (--cfg job).

    Raises ConfigErrors if a key has several values.
    """
    refuse_sweep(overrides)
    config, errors = compose_partly(command, overrides)
    refuse(errors)
    print(OmegaConf.to_yaml(config), end="")


def _complete(command: str) -> None:
    """Installs shell completion or completes a word, using Hydra.

    Raises UsageError if the flag is used incorrectly.
    """
    actions = [f"{action}={shell}" for action in ("install", "uninstall") for shell in SHELLS]
    if "COMP_LINE" not in os.environ and not {*actions} & {*sys.argv}:
        raise UsageError(f"-sc: must be one of {', '.join(actions[: len(SHELLS)])}")
    # Hydra handles the completion and exits without calling the function.
    hydra_main(command, "nmt.*")(lambda _: None)()


def _run(
    command: str, run: Callable[[Any], Any], overrides: Sequence[str], again: str | None
) -> None:
    """Runs a command once.

    command: name of the command, such as train
    run: function that runs the command with the given settings
    overrides: command-line overrides, such as decoder=luong
    again: config.yaml of the run to repeat (--from); None composes a new configuration

    Raises UsageError if the settings are invalid.
    """
    ranks = of_torchrun()
    if ranks.several:  # set before torch is imported; hides warnings about unused parameters
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from nmt.configuration.configure import configure_single
    from nmt.foundation.terminal import hush

    # Only rank 0 logs.
    if not ranks.first:
        hush()
    settings = configure_single(command, overrides, again)
    if ranks.several and command not in TOGETHER:
        raise UsageError(
            f"nmt.{command}: runs in a single process; start the command without torchrun"
        )
    choose_format(settings.log == "json")
    prepare_process(settings.threads)
    run(settings)
