"""Translation in Ray tasks (nmt.translate launcher=ray)."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.configuration.model_settings import TranslateSettings
from nmt.foundation.devices import find_device
from nmt.foundation.errors import UserError
from nmt.foundation.extras import require
from nmt.pipeline.model_commands import AGAIN, translate

MOST_RESTARTS = 3
"""Maximum number of times that Ray starts a task again whose process or machine was lost."""


def run_jobs(settings: TranslateSettings) -> None:
    """Translates in simultaneous Ray tasks, which write the part files of the output.

    Machines of a Ray cluster need access to the working directory and to the output folder.

    Raises UserError if a task fails.
    """
    require("ray")
    import ray

    ray.init(ignore_reinit_error=True, log_to_driver=False)
    is_on_gpu = find_device(settings.device).type == "cuda"
    cores = settings.threads or 1
    task = ray.remote(num_cpus=cores, num_gpus=int(is_on_gpu), max_retries=MOST_RESTARTS)(_run_job)
    output = str(settings.output)
    folder = output if output.endswith("/") else f"{output}.parts/"
    shared = replace(settings, launcher=None, jobs=1, output=folder, threads=cores)
    shares = [f"{number + 1}/{settings.jobs}" for number in range(settings.jobs)]
    try:
        ray.get([task.remote({**shared.values, "job": share}, str(Path.cwd())) for share in shares])
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise UserError(
            f"launcher=ray: a task has ended without result ({error}). {AGAIN}"
        ) from error


def _run_job(values: Mapping[str, Any], folder: str) -> None:
    """Translates the blocks of one job; runs in a Ray worker.

    values: settings of nmt.translate
    folder: working directory, to which relative paths refer
    """
    import torch

    os.chdir(folder)
    torch.set_num_threads(values["threads"])
    translate(TranslateSettings.of(values))
