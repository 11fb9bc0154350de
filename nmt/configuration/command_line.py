"""What every command line does: compose and check the configuration, run, report errors. Flags and sweeps are left to
Hydra.

Nothing heavy is imported before a command knows what it has to do: --help and TAB completion must be quick.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import errno
import functools
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from nmt.configuration.compose import CONF, compose_unresolved, search_beside, variants
from nmt.configuration.faults import Fault, Faults
from nmt.foundation.errors import UserError

SWEEP = ("-m", "--multirun")
BESIDE = ("--config-dir", "-cd")
PRINT = ("--cfg", "-c")
COMPLETION = ("--shell-completion", "-sc")
HELP = ("--help", "-h")
SHELLS = ("bash", "zsh", "fish")
FLAGS = (*SWEEP, *BESIDE, *PRINT, *HELP, *COMPLETION, "--version")
LONGEST_NAME = 240
"""Bytes of the name of a folder."""


def command_line(command: str, run: Callable[[Any], Any]) -> Callable[[], None]:
    """A `main` that calls `run` with the settings of conf/{command}.yaml and the command line.

    User errors are printed without a traceback; exit status 1, or 130 if interrupted. What `run` returns is for sweeps
    alone: an installed command would take it for its exit status.
    """

    def main() -> None:
        flags, overrides = _split(sys.argv[1:])
        for folder in flags.get(BESIDE[0], []):
            friendly(functools.partial(search_beside, folder))
        others = [flag for flag in flags if flag not in (SWEEP[0], BESIDE[0])]
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
            _sweep(command, run, overrides)
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
    logger = logging.getLogger("nmt")
    if logger.handlers:
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
    value = given or value or (after[0] if after and "=" not in after[0] and not after[0].startswith("-") else "VALUE")
    key = name.lstrip("-").replace("-", "_")
    raise UserError(f"{name}: there is no such flag. Write {key}={value}, without dashes; --help shows all keys")


def _split(arguments: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Flags with their values, by their long or usual names; and overrides."""
    flags: dict[str, list[str]] = {}
    overrides, waiting = [], iter(arguments)
    names = dict.fromkeys(SWEEP, SWEEP[0]) | dict.fromkeys(BESIDE, BESIDE[0]) | dict.fromkeys(PRINT, PRINT[0])
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        held = flags.setdefault(names.get(name, name), [])
        if names.get(name) in (BESIDE[0], PRINT[0]):
            held.append(value if equals else next(waiting, ""))
    return flags, overrides


def _help(command: str, overrides: Sequence[str]) -> None:
    from nmt.configuration.help import help_of

    print(help_of(command, overrides), end="")


def _completion(command: str) -> None:
    """Left to Hydra. Raises UserError if it is not called by a shell, and not asked for what a shell needs."""
    install = any(f"{action}={shell}" in sys.argv for action in ("install", "uninstall") for shell in SHELLS)
    if not install and "COMP_LINE" not in os.environ:
        raise UserError(f"-sc: give one of {', '.join(f'install={shell}' for shell in SHELLS)}")
    _hydra(command, lambda _: None)


def _print(command: str, what: Sequence[str], overrides: Sequence[str]) -> None:
    if what != ["job"]:
        raise UserError("--cfg: give job, as in --cfg job; it prints the configuration of a run")
    from omegaconf import OmegaConf

    from nmt.configuration.configure import swept

    several = swept(overrides)
    if several:
        raise Faults(several)
    print(OmegaConf.to_yaml(compose_unresolved(command, overrides)), end="")


def _run(command: str, run: Callable[[Any], Any], overrides: Sequence[str]) -> Any:
    from nmt.configuration.configure import configure
    from nmt.foundation.terminal import set_up_logging
    from nmt.training.memory import keep_freed_memory

    of_hydra = [text for text in overrides if text.lstrip("+~").startswith("hydra")]
    if of_hydra:
        raise Faults([Fault(text, "is for sweeps (-m); the folder of a run is run_dir=DIR") for text in of_hydra])
    settings = configure(command, overrides)
    if getattr(settings, "grids", None):
        raise Faults([Fault("grids", "these are the runs of a sweep; add -m, or leave them out")])
    set_up_logging()
    keep_freed_memory()
    return run(settings)


def _sweep(command: str, run: Callable[[Any], Any], overrides: Sequence[str]) -> Any:
    """Runs all grids of a sweep. An error in one run does not stop the sweep; a fault common to all runs of a grid
    does, before anything runs."""
    from nmt.configuration.configure import configure
    from nmt.foundation.terminal import set_up_logging
    from nmt.training.memory import keep_freed_memory

    def prepared() -> list[list[str]]:
        from nmt.configuration.compose import resolve

        given = [text for text in overrides if not text.startswith("hydra")]
        config = resolve(compose_unresolved(command, variants(given)[0]))
        grids = config.get("grids") or [""]
        whole = [[*str(grid).split(), *(text for text in given if not text.startswith("grids="))] for grid in grids]
        for grid in whole:
            faults = [_faults_of(command, one) for one in variants(grid)]
            common = [fault for fault in faults[0] if all(fault in others for others in faults)]
            if common:
                raise Faults(common)
        hydra = [text for text in overrides if text.startswith("hydra")]
        nameless = _nameless(command, [text for grid in whole for text in grid])
        if nameless:
            hydra.append(f"hydra.job.config.override_dirname.exclude_keys=[{','.join(nameless)}]")
        folder = config.get("run_dir") or f"runs/{time.strftime('%Y-%m-%d_%H-%M-%S')}"
        where = [f"hydra.sweep.dir='{folder}'"]
        return [[*grid, *where, *hydra] for grid in whole]

    failures: list[str] = []

    def job(hydra: Any) -> Any:
        keep_freed_memory()
        set_up_logging()  # what is wrong with this run does not belong in the log of the run before
        try:
            settings = configure(command, hydra.overrides.task)
            own = {"run_dir": hydra.runtime.output_dir, "grids": None}
            return run(dataclasses.replace(settings, **{k: v for k, v in own.items() if hasattr(settings, k)}))
        except UserError as error:
            _tell(error)
            failures.append(str(error))
            return float("nan")

    result = None
    for grid in friendly(prepared):
        sys.argv[1:] = ["-m", *("~experiment" if text == "experiment=null" else text for text in grid)]
        result = _hydra(command, job)
    if failures:
        raise SystemExit(1)
    return result


def _nameless(command: str, overrides: Sequence[str]) -> list[str]:
    """Keys that do not name the folders of a sweep: those of the command's YAML, unless they differ between the runs."""
    import yaml

    from nmt.configuration.configure import swept

    with open(f"{CONF}/{command}.yaml", encoding="utf-8") as file:
        usual = yaml.safe_load(file)["hydra"].get("job", {}).get("config", {}).get("override_dirname", {})
    differing = {fault.key.partition("=")[0] for fault in swept(overrides)}
    return [key for key in usual.get("exclude_keys", []) if key not in differing]


def _faults_of(command: str, overrides: Sequence[str]) -> tuple[Fault, ...]:
    from nmt.configuration.configure import configure

    try:
        configure(command, overrides)
    except Faults as error:
        return error.faults
    return ()


def _short(name: str) -> str:
    """A folder's name; one that file systems would refuse ends in a hash of the rest."""
    import hashlib

    name = name.replace("/", "-")  # of paths: a run has one folder
    if len(name.encode()) <= LONGEST_NAME:
        return name
    kept = name.encode()[: LONGEST_NAME - 13].decode("utf-8", "ignore")
    return f"{kept}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _hydra(command: str, job: Callable[[Any], Any]) -> Any:
    """Leaves the command line to Hydra, which calls `job` with its own settings for every run."""
    import hydra
    from omegaconf import OmegaConf

    OmegaConf.register_new_resolver("short_name", _short, replace=True)
    compatible: dict[str, Any] = {"version_base": "1.3"}
    if "execution_whitelist" in inspect.signature(hydra.main).parameters:  # Hydra ≥ 1.4
        compatible = {"execution_whitelist": ("nmt.*",)}

    @hydra.main(config_path=CONF, config_name=command, **compatible)
    def task(_: Any) -> Any:
        from hydra.core.hydra_config import HydraConfig

        return job(HydraConfig.get())

    return task()
