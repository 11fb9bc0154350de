"""Hydra launchers for the runs of a sweep; each launcher calls `nmt.sweep.job.train`."""

import os
import shutil
import socket
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nmt.configuration.overrides import apply, parse
from nmt.configuration.yaml_files import HYDRA_ERRORS, by_hydra, hydra_main, reason, search_path
from nmt.foundation.errors import UsageError, quoted
from nmt.foundation.part_limits import ConfigError, refuse
from nmt.foundation.suggestions import unknown
from nmt.sweep import job
from nmt.sweep.run_status import Run, find

NOTES = ".sweep"
"""Name of the subfolder of a sweep for locks, shared tokenizers and launcher files."""
PACKAGES = {
    "workers": ("joblib", "sweep"),
    "slurm": ("submitit", "sweep"),
    "slurm_here": ("submitit", "sweep"),
    "ray_here": ("ray", "ray"),
}
"""Maps each launcher in conf/hydra/launcher to the Python package that the launcher requires, and
to the extra of nmt that installs the package and its Hydra launcher plugin."""
CHOICE = "hydra/launcher="
SETTING = "hydra.launcher."


def check(overrides: Sequence[str], choices: Sequence[str]) -> None:
    """Checks the Hydra settings of a sweep, which may only select a launcher and set its keys.

    overrides: Hydra settings on the command line
    choices: names of the installed launchers

    Raises UserError if a launcher cannot be used, and ConfigErrors for other invalid settings.
    """
    chosen = [text for text in overrides if text.startswith(CHOICE)]
    settings = [text for text in overrides if text.startswith(SETTING)]
    refuse(
        ConfigError(
            text,
            f"not supported; a sweep accepts {CHOICE}NAME and {SETTING}KEY=VALUE. Set the folder "
            "by run_dir=DIR and the type of sweep by sweep=grid, halving or optuna",
        )
        for text in overrides
        if text not in chosen + settings
    )
    for text in chosen:
        _check_launcher(text.removeprefix(CHOICE), choices)
    if not settings:
        return
    parsed, errors = parse(settings)
    config = by_hydra(None, chosen)
    # Hydra's settings are read-only, so the check unlocks this copy.
    OmegaConf.set_readonly(config.hydra, None)
    for override in parsed:
        key = override.key_or_group
        launcher = config.hydra.launcher
        if key.split(".")[2] not in launcher:
            errors.append(unknown(key, launcher.keys()))
            continue
        try:
            errors += apply({"hydra": {"launcher": launcher}}, [override])
        except HYDRA_ERRORS as error:  # the value has the wrong type
            errors.append(ConfigError(override.input_line, reason(error)))
    if config.hydra.launcher.get("n_jobs") == 0:
        problem = "must not be 0; with -1, each core has a run"
        errors.append(ConfigError("hydra.launcher.n_jobs", problem, "0"))
    refuse(errors)


def _check_launcher(name: str, choices: Sequence[str]) -> None:
    """Raises UsageError if a launcher is unknown, not installed, or unavailable on this machine."""
    package, extra = PACKAGES.get(name, (None, None))
    if package is not None and not is_installed(package):
        raise UsageError(
            f"{CHOICE}{name}: needs hydra-{package}-launcher; run pip install "
            f"'.[{extra}]' in a checkout of nmt"
        )
    if name not in choices:
        raise UsageError(f"{CHOICE}{name}: launcher not found (available: {', '.join(choices)})")
    if name.endswith("slurm") and not shutil.which("srun"):
        raise UsageError(
            f"{CHOICE}{name}: Slurm not found on this machine (command srun); use "
            f"{CHOICE}slurm_here to run without Slurm"
        )


def is_installed(package: str) -> bool:
    """Returns whether Hydra's launcher plugin for a package is installed."""
    try:
        return find_spec(f"hydra_plugins.hydra_{package}_launcher") is not None
    except ModuleNotFoundError:  # raised if no Hydra plugin is installed
        return False


def launch(folder: Path, runs: Sequence[Run], epochs: int, settings: Sequence[str]) -> None:
    """Trains runs with a Hydra launcher.

    folder: folder of the sweep
    runs: runs to train
    epochs: epoch after which the runs stop; 0 trains each run to its end
    settings: Hydra settings, such as hydra/launcher=workers
    """
    folder = folder.resolve()  # a launcher may change the working directory
    (folder / NOTES).mkdir(parents=True, exist_ok=True)
    overrides = [
        f"+run={','.join(quoted(run.name) for run in runs)}",
        f"+folder={quoted(str(folder))}",
        f"+epochs={epochs}",
        f"+sweeper='{os.getpid()}@{socket.gethostname()}'",
        f"hydra.sweep.dir={quoted(str(folder / NOTES))}",
        "hydra.sweep.subdir=.",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
        *search_path(),
    ]
    # hydra.main reads its arguments only from sys.argv.
    typed = sys.argv
    parsed, _ = parse(settings)
    sys.argv = [typed[0], "-m", *overrides, *(override.input_line for override in parsed)]
    try:
        hydra_main(None, "nmt.*", "hydra_plugins.*")(train)()
    finally:
        sys.argv = typed


def train(config: Any) -> None:
    """Trains one run of a sweep; Hydra's launcher calls this function for each run."""
    from hydra.core.hydra_config import HydraConfig

    folder = Path(config.folder)
    # A launcher passes only names; the sweep folder contains all other data.
    [run] = [run for run in find(folder) if run.name == config.run]
    launcher: Any = OmegaConf.to_container(HydraConfig.get().launcher, resolve=True)
    job.train(run, config.epochs, config.sweeper, launcher, folder / NOTES)
