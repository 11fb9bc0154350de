"""Gives runs to one of Hydra's launchers, which calls `job.train` for each: here, in worker processes, on a cluster."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nmt.configuration.compose import faults_of_hydra, search_path
from nmt.configuration.faults import ConfigErrors
from nmt.foundation.errors import UserError
from nmt.sweep import job
from nmt.sweep.run_status import Run, find

NOTES = ".sweep"
"""The folder in a sweep's own for what is not a run: locks, and what launchers write."""
LAUNCHERS = {
    "workers": ("joblib", "sweep"), "joblib": ("joblib", "sweep"), "slurm": ("submitit", "sweep"),
    "slurm_here": ("submitit", "sweep"), "submitit_slurm": ("submitit", "sweep"), "submitit_local": ("submitit", "sweep"),
    "ray_here": ("ray", "ray"), "ray": ("ray", "ray"), "ray_aws": ("ray", "ray"),
}  # fmt: skip
"""Launchers that are not part of Hydra: the package of each, and the extra that installs it."""
SLURM = ("slurm", "submitit_slurm")
CHOICE, SETTING = "hydra/launcher=", "hydra.launcher."
"""What of Hydra's own is set for a sweep; where runs are kept, what is tried and what is logged, the sweep decides."""
INSTEAD = {
    "launcher": "who runs a sweep is chosen by hydra/launcher=NAME",
    "run": "the folder of a sweep is run_dir=DIR",
    "sweep": "the folder of a sweep is run_dir=DIR",
    "sweeper": "how a sweep goes is chosen by sweep=NAME (grid, halving, optuna)",
}


def check(overrides: Sequence[str], choices: Sequence[str]) -> None:
    """Raises UserError if the settings of Hydra are none that a sweep takes, or name a launcher that is not there, not
    installed, or without such a setting."""
    for text in overrides:
        if not text.startswith((CHOICE, SETTING)):
            usual = f"of Hydra's own, a sweep takes {CHOICE}NAME and {SETTING}KEY=VALUE"
            raise UserError(f"{text}: {INSTEAD.get(re.split('[./=]', f'{text}=')[1], usual)}")
        name = text.removeprefix(CHOICE)
        if text.startswith(SETTING) or name == "basic":
            continue
        package, extra = LAUNCHERS.get(name, (None, None))
        if package and not _there(package):
            raise UserError(f"{text} needs hydra-{package}-launcher: pip install 'nmt[{extra}]'")
        if name not in choices:
            raise UserError(f"{text}: there is no such launcher (there are: {', '.join(choices)})")
        if name in SLURM and not shutil.which("srun"):
            raise UserError(
                f"{text}: this machine has no Slurm (no command srun); {CHOICE}slurm_here tries the same here"
            )
    found = faults_of_hydra(
        [text for text in overrides if text.startswith(CHOICE)],
        [text for text in overrides if text.startswith(SETTING)],
    )
    if found:
        raise ConfigErrors(found)


def _there(package: str) -> bool:
    try:
        return find_spec(f"hydra_plugins.hydra_{package}_launcher") is not None
    except ModuleNotFoundError:  # no plugin at all
        return False


def launch(
    folder: Path, runs: Sequence[Run], epochs: int, settings: Sequence[str], conf: str
) -> None:
    """Trains the runs of a sweep in `folder` as far as `epochs` (0: to the end). `settings`: Hydra's own, such as
    hydra/launcher=joblib; `conf`: the folder of the configuration."""
    notes = folder.resolve() / NOTES
    notes.mkdir(parents=True, exist_ok=True)
    names = ",".join(f"'{run.name}'" for run in runs)
    quoted = str(folder.resolve()).replace("\\", "\\\\").replace("'", "\\'")
    fixed = [
        f"+run={names}",
        f"+folder='{quoted}'",
        f"+epochs={epochs}",
        f"+sweeper='{os.getpid()}@{socket.gethostname()}'",
    ]
    own = [
        f"hydra.sweep.dir='{quoted}/{NOTES}'",
        "hydra.sweep.subdir=.",
        "hydra.output_subdir=null",
    ]
    own += ["hydra/job_logging=none", "hydra/hydra_logging=none", *search_path()]
    typed, sys.argv = sys.argv, [sys.argv[0], "-m", *fixed, *own, *settings]
    try:
        _hydra(conf)(train)()
    finally:
        sys.argv = typed


def train(config: Any) -> None:
    """One job, as a launcher calls it."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    folder = Path(config.folder)
    [run] = [run for run in find(folder) if run.name == config.run]
    launcher: Any = OmegaConf.to_container(HydraConfig.get().launcher, resolve=True)
    job.train(run, config.epochs, config.sweeper, launcher, folder / NOTES)


def _hydra(conf: str) -> Callable[[Callable[[Any], Any]], Callable[[], Any]]:
    import hydra

    compatible: dict[str, Any] = {"version_base": "1.3"}
    if "execution_whitelist" in inspect.signature(hydra.main).parameters:  # Hydra ≥ 1.4
        compatible = {"execution_whitelist": ("nmt.*", "hydra_plugins.*")}
    return hydra.main(config_path=conf, config_name=None, **compatible)
