"""Launchers of Hydra for the runs of a sweep; each calls `nmt.sweep.job.train`."""

import os
import re
import shutil
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nmt.configuration.compose import (
    apply,
    by_hydra,
    first_line,
    hydra_errors,
    hydra_main,
    parse,
    search_path,
)
from nmt.configuration.faults import ConfigError, refuse
from nmt.foundation.errors import UserError
from nmt.sweep import job
from nmt.sweep.run_status import Run, find

NOTES = ".sweep"
"""Folder of a sweep for locks, shared tokenizers, and files of launchers."""
PACKAGES = {"workers": "joblib", "slurm": "submitit", "slurm_here": "submitit"}
"""Packages of launchers; the names of other launchers begin with their package (submitit_local)."""
EXTRAS = {"joblib": "sweep", "submitit": "sweep", "ray": "ray"}
"""Extras that install the launchers of a package."""
SLURM = ("slurm", "submitit_slurm")
"""Launchers that need the command srun."""
CHOICE = "hydra/launcher="
SETTING = "hydra.launcher."
INSTEAD = {
    "launcher": "choose a launcher by hydra/launcher=NAME",
    "run": "the folder of a sweep is run_dir=DIR",
    "sweep": "the folder of a sweep is run_dir=DIR",
    "sweeper": "choose a kind of sweep by sweep=NAME (grid, halving, optuna)",
}
"""Remedies for settings of Hydra that a sweep replaces, by their first part."""


def check(overrides: Sequence[str], choices: Sequence[str]) -> None:
    """Raises UserError for settings of Hydra that a sweep does not accept.

    overrides: the settings; a sweep accepts the name of a launcher and the launcher's keys
    choices: names of the installed launchers
    """
    from omegaconf import OmegaConf

    chosen = [text for text in overrides if text.startswith(CHOICE)]
    settings = [text for text in overrides if text.startswith(SETTING)]
    for text in overrides:
        if text in chosen:
            _check_launcher(text.removeprefix(CHOICE), choices)
        elif text not in settings:
            first = re.split("[./=]", f"{text}=")[1]
            usual = f"of Hydra's settings, a sweep accepts {CHOICE}NAME and {SETTING}KEY=VALUE"
            raise UserError(f"{text}: {INSTEAD.get(first, usual)}")
    parsed, errors = parse(settings)
    config = by_hydra(None, chosen)
    # Hydra locks its own settings; the check sets them in this copy.
    OmegaConf.set_readonly(config.hydra, None)
    for override in parsed:
        try:
            errors += apply(config, [override])
        except (
            hydra_errors()
        ) as error:  # a value of another type, such as hydra.launcher.n_jobs=two
            errors.append(ConfigError(override.input_line, first_line(error)))
    refuse(errors)


def _check_launcher(name: str, choices: Sequence[str]) -> None:
    """Raises UserError if a launcher is unknown, not installed, or unavailable on this machine."""
    package = PACKAGES.get(name, name.partition("_")[0])
    if package in EXTRAS and not is_installed(package):
        raise UserError(
            f"{CHOICE}{name} needs hydra-{package}-launcher: pip install "
            f"'.[{EXTRAS[package]}]' in a checkout of nmt"
        )
    if name not in choices:
        raise UserError(f"{CHOICE}{name}: no such launcher (there are: {', '.join(choices)})")
    if name in SLURM and not shutil.which("srun"):
        raise UserError(
            f"{CHOICE}{name}: this machine has no Slurm (no command srun); {CHOICE}slurm_here "
            "tries the same here"
        )


def is_installed(package: str) -> bool:
    """Returns whether Hydra's plugin for a package is installed."""
    try:
        return find_spec(f"hydra_plugins.hydra_{package}_launcher") is not None
    except ModuleNotFoundError:  # no plugin at all
        return False


def launch(folder: Path, runs: Sequence[Run], epochs: int, settings: Sequence[str]) -> None:
    """Trains runs by a launcher.

    folder: folder of the sweep
    runs: runs to train
    epochs: epoch after which they stop; 0: at their end
    settings: settings of Hydra, such as hydra/launcher=workers
    """
    folder = folder.resolve()
    (folder / NOTES).mkdir(parents=True, exist_ok=True)
    # Hydra's grammar reads escapes within quotes.
    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    names = ",".join(f"'{run.name}'" for run in runs)
    overrides = [
        f"+run={names}",
        f"+folder='{quoted}'",
        f"+epochs={epochs}",
        f"+sweeper='{os.getpid()}@{socket.gethostname()}'",
        f"hydra.sweep.dir='{quoted}/{NOTES}'",
        "hydra.sweep.subdir=.",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
        *search_path(),
    ]
    # hydra.main reads its arguments from the command line only.
    typed = sys.argv
    sys.argv = [typed[0], "-m", *overrides, *settings]
    try:
        hydra_main(None, "nmt.*", "hydra_plugins.*")(train)()
    finally:
        sys.argv = typed


def train(config: Any) -> None:
    """Trains one run; a launcher calls this function for each."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    folder = Path(config.folder)
    [run] = [run for run in find(folder) if run.name == config.run]
    launcher: Any = OmegaConf.to_container(HydraConfig.get().launcher, resolve=True)
    job.train(run, config.epochs, config.sweeper, launcher, folder / NOTES)
