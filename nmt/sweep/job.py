"""Training of a single run of a sweep in a separate process, started by a launcher."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nmt
from nmt.foundation.errors import quoted
from nmt.foundation.processes import available_cores
from nmt.storage.lock import Lock, LockHeld
from nmt.sweep.run_status import Run

OUTPUT = "output.log"
"""Name of the file with all output of a run's process, including output before train.log exists."""
LONGEST = 1000
"""Maximum number of characters of a failure message in the record of a run."""
SAVE_SECONDS = 60
"""Seconds that an interrupted training process has to save its state before the sweep kills it."""
INTERRUPTED = 130
"""Exit status of a training process that was interrupted and has saved its state."""
MESSAGE = re.compile(r"^(?:error: |\S+ \S+ ERROR )", re.MULTILINE)
JSON_ERROR = re.compile(r'^\{.*"level": "ERROR".*\}$', re.MULTILINE)
"""Regular expression for the line of an error message if log=json is set."""


def train(run: Run, epochs: int, sweeper: str, launcher: Mapping[str, Any], slots: Path) -> None:
    """Trains a run from its current state, and records its duration or failure.

    run: run to train
    epochs: epoch to stop after; 0 trains to the end
    sweeper: PROCESS@HOST of the sweep; the run stops when this process ends
    launcher: settings of the launcher
    slots: folder for GPU locks and shared tokenizers
    """
    if run.reached(epochs):
        return
    folder = quoted(str(run.folder))
    settings = [f"resume={folder}"] if run.begun else [*run.overrides, f"run_dir={folder}"]
    if run.begun or epochs:
        settings.append(f"trainer.stop_after={epochs}")
    settings += [f"--config-dir={directory}" for directory in run.config_dirs]
    settings += [f"--plugins={package}" for package in run.plugins]
    # Count the attempt before the start, so that a killed sweep has counted it too.
    run.note(failure=None, halted=None, attempts=run.record().get("attempts", 0) + 1)
    command = [sys.executable, "-m", "nmt.sweep.child", sweeper, f"nmt.{run.command}", *settings]
    began = time.time()
    with run_environment(launcher, slots) as environment, open(run.folder / OUTPUT, "ab") as output:
        # The output of this attempt is appended to the output of earlier attempts.
        start = output.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            # Ctrl-C in the terminal reaches only the sweep, which interrupts its runs.
            start_new_session=True,
        )
        try:
            status = _wait(process)
        finally:  # duration of all attempts in seconds, interrupted attempts included
            seconds = run.record().get("seconds", 0.0) + round(time.time() - began, 1)
            run.note(seconds=seconds)
    failure = None
    # A run is stopped by a signal or, if the whole training is due, by trainer.stop_after.
    is_stopped = status == INTERRUPTED or (status == 0 and run.begun and not epochs)
    if not is_stopped and (status != 0 or not run.reached(epochs)):
        # The reason is searched only in the output of this attempt.
        printed = (run.folder / OUTPUT).read_bytes()[start:].decode("utf-8", "replace")
        failure = reason(status, printed)
    run.note(failure=failure)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Waits for the training process of a run, and returns its exit status.

    After Ctrl-C, interrupts the process, which has SAVE_SECONDS to save its state.
    """
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)  # the training saves its state and stops
        try:
            process.wait(SAVE_SECONDS)
        except BaseException:  # Ctrl-C was pressed again
            process.kill()
            process.wait()
        raise


def reason(status: int, printed: str) -> str:
    """Returns the reason for a failed run: the last error message, or the last line of output.

    status: exit status of the process; -N if signal N ended the process
    printed: output of the process
    """
    if status < 0:
        # Real-time signals have no names.
        name = {s.value: s.name for s in signal.Signals}.get(-status, f"signal {-status}")
        hint = "; probably out of memory" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    records = JSON_ERROR.findall(printed)
    if records:
        return str(json.loads(records[-1])["message"])[:LONGEST]
    [*earlier, last] = MESSAGE.split(printed)
    if earlier:
        return last.strip()[:LONGEST]
    lines = printed.strip().splitlines()
    return f"exit status {status}{': ' + lines[-1][:LONGEST] if lines else ''}"


@contextmanager
def run_environment(launcher: Mapping[str, Any], slots: Path) -> Iterator[dict[str, str]]:
    """Yields the environment variables of a run's process: threads, GPU, and path of nmt."""
    package = str(Path(nmt.__file__).resolve().parent.parent)
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = threads_of(launcher)
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "NMT_TOKENIZERS": str(slots / "tokenizers"),
        **({} if threads is None else {"OMP_NUM_THREADS": str(threads)}),
    }
    jobs = parallel_jobs(launcher)
    devices = gpus() if jobs > 1 else []
    if devices:
        with _slot(slots, jobs) as slot:
            yield {**variables, "CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]}
    else:
        yield variables


def parallel_jobs(launcher: Mapping[str, Any]) -> int:
    """Returns the number of jobs that a launcher runs at the same time on this machine."""
    jobs = launcher.get("n_jobs")
    if not isinstance(jobs, int):
        return 1
    # Negative numbers as in joblib: -1 means all cores, -2 all cores but one.
    return max(1, jobs if jobs > 0 else available_cores() + 1 + jobs)


def threads_of(launcher: Mapping[str, Any]) -> int | None:
    """Returns the number of threads of each job; None if the launcher does not set the number."""
    if isinstance(launcher.get("n_jobs"), int):
        return max(1, available_cores() // parallel_jobs(launcher))
    remote = (launcher.get("ray") or {}).get("remote", {})
    settings = (launcher.get("cpus_per_task"), remote.get("num_cpus"))
    return next((threads for threads in settings if isinstance(threads, int)), None)


def gpus() -> list[str]:
    """Returns the names of the available GPUs, in the form of CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    import torch  # takes seconds, in each process of a launcher

    return [str(i) for i in range(torch.cuda.device_count())]


@contextmanager
def _slot(folder: Path, jobs: int) -> Iterator[int]:
    """Yields a slot number below `jobs` that no other job holds at the same time."""
    while True:
        for slot in range(jobs):
            try:
                lock = Lock(folder / f"slot-{slot}", "slot")
            except LockHeld:
                continue
            with lock:
                yield slot
                return
        time.sleep(0.2)
