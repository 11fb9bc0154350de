"""The `main` of every command: composes and checks the configuration, runs, reports errors.

Hydra completes words for shells. Heavy modules are imported inside functions, because --help and
completion must be quick.
"""

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from nmt.configuration.compose import compose_partly, hydra_main, search_beside
from nmt.configuration.faults import ConfigError, broken, refuse
from nmt.foundation import plugins
from nmt.foundation.command_exit import with_exit_status
from nmt.foundation.deferred import imported, make_callable, with_settings
from nmt.foundation.errors import UserError, quoted
from nmt.foundation.ranks import of_torchrun

SHELLS = ("bash", "zsh", "fish")
TOGETHER = ("train", "classify", "translate", "score")
"""Commands that may run in several processes."""
POSITIONAL = {"report": "folders", "compare": "systems", "check_attention": "functions"}
"""Commands whose arguments without a key are a list, and the key of that list."""
SWITCH = {"action": "store_true"}
VALUE = {"nargs": "?", "const": ""}
FLAGS: Mapping[tuple[str, ...], Mapping[str, Any]] = {
    ("--multirun", "-m"): SWITCH,
    ("--dry-run",): SWITCH,
    ("--config-dir", "-cd"): {**VALUE, "action": "append", "default": []},
    ("--cfg", "-c"): VALUE,
    ("--plugins",): {**VALUE, "action": "append", "default": []},
    ("--from",): {**VALUE, "dest": "again"},
    ("--help", "-h"): SWITCH,
    ("--shell-completion", "-sc"): SWITCH,
    ("--version",): SWITCH,
}
"""Names of each flag, and its options for argparse."""


def command(
    name: str,
    target: str,
    *,
    sweep: str | None = "nmt.pipeline.one_after_another:run_all",
    instead: Mapping[str, str] | None = None,
    python: str | None = None,
) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Returns `run`, a function of the settings, and `main`, a function of the command line.

    name: name of the command and of its YAML file
    target: `module:function` that does the work; it receives the settings that it names
    sweep: `module:function` that runs all combinations of several values (-m); None: -m is an error
    instead: keys that belong to another command, each with the command that is then called
    python: `module:function` that the command's module calls in Python, such as nmt.train(…)

    `main` prints errors for users without a traceback. The exit status is 1, or 130 after an
    interruption. It returns nothing, because an installed command exits with what `main` returns.
    """
    # The work is imported when it starts: --help must not load torch.
    run = with_settings(target)
    if python is not None and f"nmt.{name}" in sys.modules:
        make_callable(sys.modules[f"nmt.{name}"], python)

    def main() -> None:
        with_exit_status(lambda: _dispatch(name, run, sweep, instead or {}))

    return run, main


def _flags() -> tuple[argparse.Namespace, list[str]]:
    """Flags of the command line, and the remaining words. Raises UserError for a misused flag."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for names, options in FLAGS.items():
        parser.add_argument(*names, **options)
    try:
        return parser.parse_known_args(sys.argv[1:])
    except argparse.ArgumentError as error:
        raise UserError(str(error)) from error


def _dispatch(
    name: str, run: Callable[[Any], Any], sweep: str | None, instead: Mapping[str, str]
) -> None:
    """Runs the action of the flags, or the command itself."""
    flags, words = _flags()
    overrides = with_key(name, [word for word in words if not word.startswith("-")])
    strange = [word for word in words if word.startswith("-")]  # undefined flags
    for override in overrides:
        key, equals, _ = override.partition("=")
        if equals and key in instead:
            return importlib.import_module(f"nmt.{instead[key]}").main()
    for folder in flags.config_dir:
        search_beside(folder)
    plugins.permit(package for names in flags.plugins for package in names.split(","))
    if flags.version:
        from nmt import __version__

        print(f"nmt {__version__}")
    elif strange:
        raise _no_such_flag(strange[0])
    elif flags.help:
        from nmt.configuration.help import help_of, matching

        sought = [word for word in words if "=" not in word and word not in strange]
        text = help_of(name, [word for word in words if "=" in word])
        print(matching(text, sought) if sought else text, end="")
    elif flags.cfg is not None:
        _print(name, flags.cfg, overrides)
    elif flags.shell_completion:
        _complete(name)
    elif flags.multirun:
        if flags.again is not None:
            raise UserError("--from repeats a single run: leave out -m")
        _run_all(name, run, sweep, overrides, flags.dry_run)
    elif flags.dry_run:
        raise UserError("--dry-run lists the runs of a sweep: add -m")
    else:
        _run(name, run, overrides, flags.again)


def _run_all(
    command: str, run: Callable[[Any], Any], sweep: str | None, overrides: Sequence[str], dry: bool
) -> None:
    """Runs a command with all combinations of several values (-m).

    command: name of the command
    run: function of its settings
    sweep: `module:function` that does the runs; None: the command has no sweep
    overrides: command line
    dry: whether the runs are only listed

    Raises UserError for a command without a sweep, and with torchrun.
    """
    if sweep is None:
        raise UserError(
            f"nmt.{command} makes several runs already: call it once for each, "
            "or sweep over nmt.train"
        )
    if of_torchrun().several:
        raise UserError(
            "-m trains many runs, each in a process of its own: start it without torchrun"
        )
    _prepare_process()
    imported(sweep)(command, run, overrides, dry=dry)


def _no_such_flag(flag: str) -> UserError:
    """The error of an unknown flag, which suggests a flag or the key of this name."""
    name, equals, value = flag.partition("=")
    near = difflib.get_close_matches(name, chain(*FLAGS), 1, 0.7)
    if near:
        return UserError(f"{name}: no such flag; did you mean {near[0]}?")
    if not equals:  # --key VALUE
        following = sys.argv[sys.argv.index(flag) + 1 :] if flag in sys.argv else []
        values = [word for word in following[:1] if "=" not in word and not word.startswith("-")]
        value = values[0] if values else "VALUE"
    key = name.lstrip("-").replace("-", "_")
    return UserError(
        f"{name}: no such flag. Write {key}={value}, without dashes; --help shows all keys"
    )


def with_key(command: str, overrides: Sequence[str]) -> list[str]:
    """Turns arguments without a key into a list, for commands that have one (`POSITIONAL`)."""
    alone = [text for text in overrides if "=" not in text and not text.startswith("~")]
    if command not in POSITIONAL or not alone:
        return list(overrides)
    others = [text for text in overrides if text not in alone]
    return [*others, f"{POSITIONAL[command]}=[{','.join(map(quoted, alone))}]"]


def _print(command: str, what: str, overrides: Sequence[str]) -> None:
    """Prints the configuration of a run (--cfg job). Raises ConfigErrors for a sweep."""
    if what != "job":
        raise UserError("--cfg: give job, as in --cfg job; it prints the configuration of a run")
    from omegaconf import OmegaConf

    from nmt.configuration.configure import refuse_sweep

    refuse_sweep(overrides)
    config, errors = compose_partly(command, overrides)
    refuse(errors)
    print(OmegaConf.to_yaml(config), end="")


def _complete(command: str) -> None:
    """Completes a word, or installs completion, by Hydra. Raises UserError for another use."""
    actions = [f"{action}={shell}" for action in ("install", "uninstall") for shell in SHELLS]
    if "COMP_LINE" not in os.environ and not {*actions} & {*sys.argv}:
        raise UserError(f"-sc: give one of {', '.join(actions[: len(SHELLS)])}")
    # Hydra answers the completion and ends; the function is not called.
    hydra_main(command, "nmt.*")(lambda _: None)()


def _run(
    command: str, run: Callable[[Any], Any], overrides: Sequence[str], again: str | None
) -> None:
    """Runs a command once; arguments as of `configure`. Raises UserError for wrong settings."""
    ranks = of_torchrun()
    if ranks.several:  # before torch is imported; its warnings are about what Ranks.wrapped intends
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from nmt.configuration.build import make
    from nmt.configuration.configure import configure
    from nmt.foundation.terminal import hush

    refuse(
        ConfigError(text, "is for sweeps (-m); the folder of a run is run_dir=DIR")
        for text in overrides
        if text.lstrip("+~").startswith("hydra")
    )
    # Rank 0 reports for all.
    if not ranks.first:
        hush()
    settings = configure(command, overrides, again)
    if ranks.several and command not in TOGETHER:
        raise UserError(f"nmt.{command} runs in one process: start it without torchrun")
    sweep = getattr(settings, "sweep", None)
    several = sweep and not make({"sweep": sweep}, "sweep").single
    add = "has an effect with several runs only: add -m, or sweep=grid for a single one"
    refuse(broken((several, "sweep", add)))
    _prepare_process(settings.threads)
    run(settings)


def _prepare_process(threads: int | None = None) -> None:
    """Sets up logging, memory, and the number of threads of PyTorch, if it is given."""
    from nmt.foundation.terminal import set_up_logging
    from nmt.training.memory import keep_freed_memory

    set_up_logging()
    keep_freed_memory()
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
