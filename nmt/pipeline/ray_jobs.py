"""Translation in Ray tasks (nmt.translate launcher=ray)."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nmt.configuration.translation_settings import TranslateSettings
from nmt.foundation.devices import find_device
from nmt.foundation.errors import UserError
from nmt.foundation.extras import require
from nmt.foundation.torchrun import AGAIN

Translate = Callable[[TranslateSettings], None]
MOST_RESTARTS = 3
"""Maximum number of times that Ray restarts a task after the loss of its process or machine."""


def start_ray() -> None:
    """Connects to the Ray cluster at the address in the environment variable RAY_ADDRESS.

    Without RAY_ADDRESS, starts Ray on this machine. Ray's workers then run at normal priority,
    because with Ray's default niceness of 15, other programs would leave them little CPU time. If
    this process is already connected, nothing changes.

    Raises UserError if Ray is not installed.
    """
    require("ray")
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")
    # The first error of several tasks is raised; Ray would print the errors of the others.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    ray.init(ignore_reinit_error=True, log_to_driver=False)


def run_jobs(translate: Translate, settings: TranslateSettings) -> None:
    """Translates in parallel Ray tasks, each of which writes part files of the output.

    translate: function that translates in one process; its argument is the settings
    settings: validated settings of nmt.translate

    Machines of a Ray cluster need access to the working directory and to the output folder.

    Raises UserError if a task fails.
    """
    start_ray()
    import ray

    is_on_gpu = find_device(settings.device).type == "cuda"
    cores = settings.threads or 1
    task = ray.remote(num_cpus=cores, num_gpus=int(is_on_gpu), max_retries=MOST_RESTARTS)(_run_job)
    output = str(settings.output)
    folder = output if output.endswith("/") else f"{output}.parts/"
    shared = replace(settings, launcher=None, jobs=1, output=folder, threads=cores)
    jobs = [replace(shared, job=f"{i}/{settings.jobs}") for i in range(1, settings.jobs + 1)]
    try:
        ray.get([task.remote(translate, job, str(Path.cwd())) for job in jobs])
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise UserError(
            f"launcher=ray: a Ray task has ended without a result ({error}). {AGAIN}"
        ) from error


def _run_job(translate: Translate, settings: TranslateSettings, folder: str) -> None:
    """Translates the share of the input that belongs to one job; runs in a Ray worker.

    translate: function that translates with the given settings
    settings: settings of nmt.translate, including the number of the job
    folder: working directory, to which relative paths refer
    """
    import torch

    os.chdir(folder)
    torch.set_num_threads(settings.threads or 1)
    translate(settings)
