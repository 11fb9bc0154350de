"""What every command line does: compose and check the configuration, run, report errors. Flags and sweeps are left to
Hydra.

Nothing heavy is imported before a command knows what it has to do: --help and TAB completion must be quick.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import importlib
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nmt.configuration.compose import CONF, compose_unresolved, search_beside
from nmt.configuration.faults import ConfigError, ConfigErrors
from nmt.foundation.errors import UserError, quoted
from nmt.foundation.ranks import Silent, connected, of_torchrun

SWEEP = ("-m", "--multirun")
BESIDE = ("--config-dir", "-cd")
PRINT = ("--cfg", "-c")
COMPLETION = ("--shell-completion", "-sc")
HELP = ("--help", "-h")
SHELLS = ("bash", "zsh", "fish")
DRY = "--dry-run"
TOGETHER = ("train", "classify")
"""Commands that may run in several processes."""
FIRST_TELLS = 5.0
"""Seconds in which the first of several processes can tell what all of them have found."""
ONE_RUN = {"_target_": "nmt.sweep.grid_search.GridSearch", "grids": None}
"""The usual way of sweeping, which a single run may have too."""
FLAGS = (*SWEEP, DRY, *BESIDE, *PRINT, *HELP, *COMPLETION, "--version")


def command_line(
    command: str,
    run: Callable[[Any], Any],
    *,
    sweep: Callable[..., None] | None = None,
    instead: Mapping[str, str] | None = None,
) -> Callable[[], None]:
    """A `main` that calls `run` with the settings of conf/{command}.yaml and the command line.

    command: name of the command and of its YAML
    run: function of the settings
    sweep: function that trains several runs (-m); None: they follow one another
    instead: keys of another command, by which it is called in place of this one

    User errors are printed without a traceback; exit status 1, or 130 if interrupted. What `run` returns is for sweeps
    alone: an installed command would take it for its exit status.
    """

    def main() -> None:
        flags, overrides = _split(sys.argv[1:])
        overrides = _with_a_key(command, overrides)
        for key, other in (instead or {}).items():
            if any(text.startswith(f"{key}=") for text in overrides):
                importlib.import_module(f"nmt.{other}").main()
                return
        for folder in flags.get(BESIDE[0], []):
            friendly(functools.partial(search_beside, folder))
        others = [flag for flag in flags if flag not in (SWEEP[0], DRY, BESIDE[0])]
        strange = [flag for flag in others if flag not in FLAGS]
        if "--version" in flags:
            from nmt import __version__

            print(f"nmt {__version__}")
        elif strange:
            friendly(lambda: _refuse(strange[0], sys.argv[1:]))
        elif set(others) & set(HELP):
            friendly(lambda: _help(command, overrides))
        elif PRINT[0] in others:
            friendly(lambda: _print(command, flags[PRINT[0]], overrides))
        elif others:
            friendly(lambda: _completion(command))
        elif SWEEP[0] in flags:
            friendly(lambda: _sweep(command, run, sweep, overrides, DRY in flags))
        elif DRY in flags:
            friendly(lambda: _not_alone(DRY))
        else:
            friendly(lambda: _run(command, run, overrides))

    return main


def friendly(action: Callable[[], Any]) -> Any:
    """Calls `action`; a UserError becomes a message on stderr and exit status 1."""
    try:
        result = action()
        if sys.stdout is not None:
            sys.stdout.flush()
        return result
    except UserError as error:
        _tell(error)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT):
            raise
        _tell(UserError(f"cannot be written ({error.strerror})"))
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer goes nowhere
        raise SystemExit(1) from None


def _tell(error: UserError) -> None:
    logger, ranks = logging.getLogger("nmt"), of_torchrun()
    if not ranks.first:
        if not connected(ranks):
            time.sleep(
                FIRST_TELLS
            )  # torchrun ends this process if the first rank has the same fault, and says so
        if not isinstance(error, Silent):
            print(f"error: {error}", file=sys.stderr)
    elif logger.handlers:
        logger.error("%s", error)
    else:
        print(f"error: {error}", file=sys.stderr)


def _refuse(flag: str, arguments: Sequence[str]) -> None:
    """Raises UserError for a flag that there is not, with what was probably meant."""
    name, _, value = flag.partition("=")
    near = difflib.get_close_matches(name, FLAGS, 1, 0.7)
    if near:
        raise UserError(f"{name}: there is no such flag; did you mean {near[0]}?")
    given = next((text.partition("=")[2] for text in arguments if text.startswith(f"{name}=")), "")
    after = arguments[list(arguments).index(name) + 1 :] if name in arguments else []
    value = (
        given
        or value
        or (after[0] if after and "=" not in after[0] and not after[0].startswith("-") else "VALUE")
    )
    key = name.lstrip("-").replace("-", "_")
    raise UserError(
        f"{name}: there is no such flag. Write {key}={value}, without dashes; --help shows all keys"
    )


def _not_alone(flag: str) -> None:
    raise UserError(f"{flag} lists the runs of a sweep: add -m")


def _split(arguments: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Flags with their values, by their long or usual names; and overrides."""
    flags: dict[str, list[str]] = {}
    overrides, waiting = [], iter(arguments)
    names = (
        dict.fromkeys(SWEEP, SWEEP[0])
        | dict.fromkeys(BESIDE, BESIDE[0])
        | dict.fromkeys(PRINT, PRINT[0])
    )
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        held = flags.setdefault(names.get(name, name), [])
        if names.get(name) in (BESIDE[0], PRINT[0]):
            held.append(value if equals else next(waiting, ""))
    return flags, overrides


POSITIONAL = {"report": "folders", "compare": "systems"}
"""Commands whose arguments without a key are a list of this key."""


def _with_a_key(command: str, overrides: Sequence[str]) -> list[str]:
    """Arguments without a key as those of the command's own list."""
    alone = [text for text in overrides if "=" not in text and not text.startswith("~")]
    if command not in POSITIONAL or not alone:
        return list(overrides)
    others = [text for text in overrides if text not in alone]
    return [*others, f"{POSITIONAL[command]}=[{','.join(map(quoted, alone))}]"]


def _help(command: str, overrides: Sequence[str]) -> None:
    from nmt.configuration.help import help_of

    print(help_of(command, overrides), end="")


def _completion(command: str) -> None:
    """Left to Hydra. Raises UserError if it is not called by a shell, and not asked for what a shell needs."""
    install = any(
        f"{action}={shell}" in sys.argv for action in ("install", "uninstall") for shell in SHELLS
    )
    if not install and "COMP_LINE" not in os.environ:
        raise UserError(f"-sc: give one of {', '.join(f'install={shell}' for shell in SHELLS)}")
    _hydra(command)


def _print(command: str, what: Sequence[str], overrides: Sequence[str]) -> None:
    if what != ["job"]:
        raise UserError("--cfg: give job, as in --cfg job; it prints the configuration of a run")
    from omegaconf import OmegaConf

    from nmt.configuration.configure import swept

    several = swept(overrides)
    if several:
        raise ConfigErrors(several)
    print(OmegaConf.to_yaml(compose_unresolved(command, overrides)), end="")


def _run(command: str, run: Callable[[Any], Any], overrides: Sequence[str]) -> Any:
    if of_torchrun().several:  # before torch is imported
        os.environ.setdefault(
            "TORCH_CPP_LOG_LEVEL", "ERROR"
        )  # what it warns of is meant: see Ranks.wrapped
    from nmt.configuration.configure import configure
    from nmt.foundation.terminal import hush, set_up_logging
    from nmt.training.memory import keep_freed_memory

    of_hydra = [text for text in overrides if text.lstrip("+~").startswith("hydra")]
    if of_hydra:
        raise ConfigErrors(
            [
                ConfigError(text, "is for sweeps (-m); the folder of a run is run_dir=DIR")
                for text in of_hydra
            ]
        )
    if not of_torchrun().first:
        hush()
    settings = configure(command, overrides)
    if of_torchrun().several and command not in TOGETHER:
        raise UserError(f"nmt.{command} runs in one process: start it without torchrun")
    sweep = getattr(settings, "sweep", None)
    if sweep and ({"_target_": sweep["_target_"], "grids": sweep.get("grids")} != ONE_RUN):
        raise ConfigErrors(
            [
                ConfigError(
                    "sweep",
                    "says how several runs are made: add -m, or sweep=grid for a single one",
                )
            ]
        )
    set_up_logging()
    keep_freed_memory()
    return run(settings)


def _sweep(
    command: str,
    run: Callable[[Any], Any],
    sweep: Callable[..., None] | None,
    overrides: Sequence[str],
    dry: bool,
) -> None:
    if command == "backtranslate":
        raise UserError(
            "nmt.backtranslate makes several runs already: call it once for each, or sweep over nmt.train"
        )
    from nmt.configuration.one_after_another import run_all
    from nmt.foundation.terminal import set_up_logging
    from nmt.training.memory import keep_freed_memory

    if of_torchrun().several:
        raise UserError(
            "-m trains many runs, each in a process of its own: start it without torchrun"
        )
    of_hydra = [text for text in overrides if text.startswith("hydra")]
    others = [text for text in overrides if not text.startswith("hydra")]
    if sweep is None and (of_hydra or dry):
        raise UserError(f"{(of_hydra or [DRY])[0]}: only for sweeps of commands that train")
    set_up_logging()
    keep_freed_memory()
    if sweep is None:
        run_all(command, run, others)
    else:
        sweep(command, others, of_hydra, dry=dry)


def _hydra(command: str) -> None:
    """Leaves the command line to Hydra."""
    import hydra

    compatible: dict[str, Any] = {"version_base": "1.3"}
    if "execution_whitelist" in inspect.signature(hydra.main).parameters:  # Hydra ≥ 1.4
        compatible = {"execution_whitelist": ("nmt.*",)}
    hydra.main(config_path=CONF, config_name=command, **compatible)(lambda _: None)()
