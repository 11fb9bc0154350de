"""Implements the `main` function of every command: parses flags, composes settings, runs the
command and reports errors.

Heavy modules are imported inside functions, so that --help and shell completion start quickly.
Hydra implements shell completion.
"""

import argparse
import difflib
import gc
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from omegaconf import OmegaConf

from nmt.configuration.compose import compose_partly, hydra_main, search_beside
from nmt.foundation import plugins
from nmt.foundation.command_exit import with_exit_status
from nmt.foundation.errors import UsageError, quoted
from nmt.foundation.extras import imported, make_callable, resume_collections, with_settings
from nmt.foundation.json_log import choose_format
from nmt.foundation.part_limits import ConfigError, broken, refuse
from nmt.foundation.synonyms import SYNONYMS
from nmt.foundation.torchrun import of_torchrun

SHELLS = ("bash", "zsh", "fish")
TOGETHER = ("train", "classify", "translate", "score", "align", "backtranslate")
"""Commands that can run in several processes under torchrun."""
POSITIONAL = {"report": "folders", "compare": "systems", "check_attention": "functions"}
"""Maps a command to the key that receives its positional arguments as a list."""
SWITCH = {"action": "store_true"}
FLAGS: Mapping[tuple[str, ...], Mapping[str, Any]] = {
    ("--multirun", "-m"): SWITCH,
    ("--dry-run",): SWITCH,
    ("--config-dir", "-cd"): {"action": "append", "default": []},
    ("--cfg", "-c"): {"choices": ["job"]},
    ("--plugins",): {"action": "append", "default": []},
    ("--from",): {"dest": "again"},
    ("--help", "-h"): SWITCH,
    ("--shell-completion", "-sc"): SWITCH,
    ("--version",): SWITCH,
}
"""Names of each command-line flag, and the flag's argparse options."""


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

    `main` prints errors for users without a traceback. The exit status is 1, or the
    `exit_status` of the error's class, and 130 after an interruption.
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


def _flags() -> tuple[argparse.Namespace, list[str]]:
    """Parses the command line into flags and remaining words.

    Raises UsageError if a flag is used incorrectly.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for names, options in FLAGS.items():
        parser.add_argument(*names, **options)
    try:
        return parser.parse_known_args(sys.argv[1:])
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from error


def _dispatch(
    name: str, run: Callable[[Any], Any], sweep: str | None, instead: Mapping[str, str]
) -> None:
    """Runs the action of a flag, such as --help, or the command itself."""
    flags, words = _flags()
    overrides = with_key(name, [word for word in words if not word.startswith("-")])
    _refuse_spaces(words)
    choose_format("log=json" in overrides)  # holds for errors of the settings too
    # flags that argparse does not define
    strange = [word for word in words if word.startswith("-")]
    keys = {override.partition("=")[0] for override in overrides if "=" in override}
    for key in keys & instead.keys():
        return importlib.import_module(f"nmt.{instead[key]}").main()
    for folder in flags.config_dir:
        search_beside(folder)
    plugins.permit(package for names in flags.plugins for package in names.split(","))
    if flags.version:
        from nmt import __version__

        print(f"nmt {__version__}")
    elif strange:
        refuse(map(_no_such_flag, strange))
    elif flags.help:
        from nmt.configuration.help import help_of, matching

        sought = [word for word in words if "=" not in word and word not in strange]
        text = help_of(name, [word for word in words if "=" in word])
        print(matching(text, sought) if sought else text, end="")
    elif flags.cfg is not None:
        _print(name, overrides)
    elif flags.shell_completion:
        _complete(name)
    elif flags.multirun:
        if flags.again is not None:
            raise UsageError("--from: repeats a single run and cannot be combined with -m")
        _run_all(name, run, sweep, overrides, flags.dry_run)
    elif flags.dry_run:
        raise UsageError("--dry-run: lists the runs of a sweep, so a sweep is needed; add -m")
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
    _prepare_process()
    run_all = imported(sweep)
    resume_collections()
    run_all(command, run, overrides, dry=dry)


def _no_such_flag(flag: str) -> ConfigError:
    """Returns the error for an unknown command-line flag, with a suggested flag or key."""
    name, value = flag.partition("=")[::2]
    if name in ("--config", "-config"):
        problem = "no such flag; to train from the config.yaml of a run, write --from FILE"
        return ConfigError(name, problem)
    key = name.lstrip("-").replace("-", "_")
    translated = SYNONYMS.get(key)
    near = tuple(difflib.get_close_matches(name, chain(*FLAGS), 1, 0.7))
    if near and not translated:
        return ConfigError(name, "no such flag", nearest=near)
    keys = " or ".join(f"{word}={value or 'VALUE'}" for word in translated or (key,))
    advice = f". Write keys without dashes, as {keys}; --help lists all keys"
    return ConfigError(name, f"no such flag{advice}")


def _refuse_spaces(overrides: Sequence[str]) -> None:
    """Raises ConfigErrors if there are spaces around an equals sign or in a list."""
    errors = []
    for i, word in enumerate(overrides):
        if "=[" in word and word.count("[") > word.count("]"):
            end = next((j for j in range(i, len(overrides)) if overrides[j].endswith("]")), i)
            text = " ".join(overrides[i : end + 1])
            errors.append(ConfigError(text, f"the list has spaces; put it in quotes: '{text}'"))
    for before, after in itertools.pairwise(overrides):
        is_split = after.startswith("=") or (before.endswith("=") and "=" not in after)
        if is_split and before != "=":
            problem = "must have the form key=value, without spaces around ="
            errors.append(ConfigError(f"{before} {after}", problem))
    refuse(errors)


def with_key(command: str, overrides: Sequence[str]) -> list[str]:
    """Converts positional arguments to the key that contains them as a list, such as folders=[…] of
    nmt.report.
    """
    alone = [text for text in overrides if "=" not in text and not text.startswith("~")]
    if command not in POSITIONAL or not alone:
        return list(overrides)
    others = [text for text in overrides if text not in alone]
    return [*others, f"{POSITIONAL[command]}=[{','.join(map(quoted, alone))}]"]


def _print(command: str, overrides: Sequence[str]) -> None:
    """Prints the composed configuration of a single run (--cfg job).

    Raises ConfigErrors if a key has several values.
    """
    from nmt.configuration.configure import refuse_sweep

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
    from nmt.components import make
    from nmt.configuration.configure import configure
    from nmt.foundation.terminal import hush

    refuse(
        ConfigError(
            text,
            "supported only by sweeps (-m); for a single training, set the run folder with "
            "run_dir=DIR",
        )
        for text in overrides
        if text.lstrip("+~").startswith("hydra")
    )
    # Only rank 0 logs.
    if not ranks.first:
        hush()
    settings = configure(command, overrides, again)
    if ranks.several and command not in TOGETHER:
        raise UsageError(
            f"nmt.{command}: runs in a single process; start the command without torchrun"
        )
    sweep = getattr(settings, "sweep", None)
    several = sweep and not make({"sweep": sweep}, "sweep").single
    add = "this sweep has several runs; add -m, or set sweep=grid for a single run"
    refuse(broken((several, "sweep", add)))
    choose_format(settings.log == "json")
    _prepare_process(settings.threads)
    run(settings)


def _prepare_process(threads: int | None = None) -> None:
    """Sets up logging, memory allocation and, if given, the number of PyTorch threads."""
    from nmt.foundation.terminal import set_up_logging
    from nmt.training.memory import keep_freed_memory

    set_up_logging()
    keep_freed_memory()
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
