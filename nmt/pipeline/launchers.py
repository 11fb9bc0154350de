"""Launchers of Hydra for the runs of a sweep; each calls `nmt.sweep.job.train`."""

import os
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
    hydra_errors,
    hydra_main,
    parse,
    reason,
    search_path,
)
from nmt.configuration.faults import ConfigError, refuse
from nmt.foundation.errors import UserError
from nmt.sweep import job
from nmt.sweep.run_status import Run, find

NOTES = ".sweep"
"""Folder of a sweep for locks, shared tokenizers, and files of launchers."""
PACKAGES = {"workers": "joblib", "slurm": "submitit", "slurm_here": "submitit", "ray_here": "ray"}
"""Packages of the launchers of conf/hydra/launcher."""
EXTRAS = {"joblib": "sweep", "submitit": "sweep", "ray": "ray"}
"""Extras that install the launchers of a package."""
CHOICE = "hydra/launcher="
SETTING = "hydra.launcher."
ACCEPTED = (
    f"of Hydra's settings, a sweep accepts {CHOICE}NAME and {SETTING}KEY=VALUE; its folder is "
    "run_dir=DIR, and its kind is chosen by sweep=NAME (grid, halving, optuna)"
)
"""Remedy for other settings of Hydra."""


def check(overrides: Sequence[str], choices: Sequence[str]) -> None:
    """Checks the settings of Hydra for a sweep: the name of a launcher, and the launcher's keys.

    overrides: the settings
    choices: names of the installed launchers

    Raises UserError for a launcher that cannot be used, ConfigErrors for other wrong settings.
    """
    from omegaconf import OmegaConf

    chosen = [text for text in overrides if text.startswith(CHOICE)]
    settings = [text for text in overrides if text.startswith(SETTING)]
    refuse(ConfigError(text, ACCEPTED) for text in overrides if text not in chosen + settings)
    for text in chosen:
        _check_launcher(text.removeprefix(CHOICE), choices)
    parsed, errors = parse(settings)
    config = by_hydra(None, chosen)
    # Hydra locks its own settings; the check sets them in this copy.
    OmegaConf.set_readonly(config.hydra, None)
    for override in parsed:
        try:
            errors += apply(config, [override])
        except hydra_errors() as error:  # a value of another type
            errors.append(ConfigError(override.input_line, reason(error)))
    refuse(errors)


def _check_launcher(name: str, choices: Sequence[str]) -> None:
    """Raises UserError if a launcher is unknown, not installed, or unavailable on this machine."""
    package = PACKAGES.get(name)
    if package is not None and not is_installed(package):
        raise UserError(
            f"{CHOICE}{name} needs hydra-{package}-launcher: pip install "
            f"'.[{EXTRAS[package]}]' in a checkout of nmt"
        )
    if name not in choices:
        raise UserError(f"{CHOICE}{name}: no such launcher (available: {', '.join(choices)})")
    if name.endswith("slurm") and not shutil.which("srun"):
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
    # The launcher passes names only; the record in the folder has the rest.
    [run] = [run for run in find(folder) if run.name == config.run]
    launcher: Any = OmegaConf.to_container(HydraConfig.get().launcher, resolve=True)
    job.train(run, config.epochs, config.sweeper, launcher, folder / NOTES)
