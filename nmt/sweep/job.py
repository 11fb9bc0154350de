"""What a launcher does with one run: trains it in a process of its own, and keeps what went wrong."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nmt
from nmt.foundation.errors import UserError, quoted
from nmt.storage.lock import Lock
from nmt.sweep.run_status import Run

OUTPUT = "output.log"
"""What the process has printed; train.log begins only when the configuration is right."""
LONGEST = 1000
"""Characters that are kept of a message."""
_SAID = re.compile(r"^(?:error: |\S+ \S+ ERROR )(?P<message>.*)", re.DOTALL | re.MULTILINE)


def train(run: Run, epochs: int, sweeper: str, launcher: Mapping[str, Any], slots: Path) -> None:
    """Trains a run from where it is as far as `epochs` (0: to its end). `sweeper`, PROCESS@HOST: the run stops when that
    process has ended; `slots`: a folder in which jobs note which GPU they use, and share what they can."""
    if run.reached(epochs):
        return
    begun = (run.folder / "last.safetensors").is_file()
    arguments = (
        [f"resume={quoted(str(run.folder))}"]
        if begun
        else [*run.overrides, f"run_dir={quoted(str(run.folder))}"]
    )
    arguments += [f"trainer.stop_after={epochs}"] if epochs or begun else []
    run.note(failure=None, attempts=run.record().get("attempts", 0) + 1)
    command = [sys.executable, "-m", "nmt.sweep.child", sweeper, f"nmt.{run.command}", *arguments]
    started = time.time()
    with _environment(launcher, slots) as environment, open(run.folder / OUTPUT, "ab") as output:
        begins = output.tell()
        status = _wait(subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        ))  # fmt: skip
    said = (run.folder / OUTPUT).read_bytes()[begins:].decode("utf-8", "replace")
    fine = status == 130 or (status == 0 and run.reached(epochs))
    failure = None if fine else reason(status, said)
    run.note(
        failure=failure, seconds=run.record().get("seconds", 0.0) + round(time.time() - started, 1)
    )


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit status. An interruption is passed on, and the process may save before this one goes on with it."""
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except BaseException:  # a second Ctrl-C
            process.kill()
            process.wait()
        raise


def reason(status: int, said: str) -> str:
    """Why a process failed: what it told the user, else its last line."""
    found = list(_SAID.finditer(said))
    if status < 0:
        name = signal.Signals(-status).name
        memory = "; probably the memory was not enough" if name == "SIGKILL" else ""
        return f"killed by {name}{memory}"
    if found:
        return found[-1]["message"].strip()[:LONGEST]
    lines = said.strip().splitlines()
    return f"exit status {status}{': ' + lines[-1][:LONGEST] if lines else ''}"


@contextmanager
def _environment(launcher: Mapping[str, Any], slots: Path) -> Iterator[dict[str, str]]:
    """The variables of a run's process: its share of the processor's threads, a GPU of its own, and where nmt is."""
    variables = dict(os.environ)
    here = str(Path(nmt.__file__).resolve().parent.parent)
    variables["NMT_TOKENIZERS"] = str(slots / "tokenizers")
    variables["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [variables.get("PYTHONPATH")])])
    jobs, threads = side_by_side(launcher), threads_of(launcher)
    if threads is not None:
        variables["OMP_NUM_THREADS"] = str(threads)
    devices = gpus() if jobs > 1 else []
    if not devices:
        yield variables
        return
    with _slot(slots, jobs) as slot:
        yield {**variables, "CUDA_VISIBLE_DEVICES": devices[slot % len(devices)]}


def side_by_side(launcher: Mapping[str, Any]) -> int:
    """Jobs that a launcher runs at the same time on this machine."""
    jobs = launcher.get("n_jobs")
    if not isinstance(jobs, int):
        return 1
    cores = _cores()
    return max(1, jobs if jobs > 0 else cores + 1 + jobs)


def threads_of(launcher: Mapping[str, Any]) -> int | None:
    """Threads of each job; None if the launcher leaves that to the environment."""
    if isinstance(launcher.get("n_jobs"), int):
        return max(1, _cores() // side_by_side(launcher))
    for asked in (
        launcher.get("cpus_per_task"),
        (launcher.get("ray") or {}).get("remote", {}).get("num_cpus"),
    ):
        if isinstance(asked, int):
            return asked
    return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> list[str]:
    """The GPUs that may be used, by the names that CUDA takes."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip() and name.strip() != "-1"]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    listed = subprocess.run([tool, "--list-gpus"], capture_output=True, text=True)
    return [str(i) for i, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU")]


@contextmanager
def _slot(folder: Path, jobs: int) -> Iterator[int]:
    """A number that no other job has at the same time."""
    while True:
        for slot in range(jobs):
            try:
                lock = Lock(folder / f"slot-{slot}", "slot")
            except UserError:
                continue
            with lock:
                yield slot
                return
        time.sleep(0.2)
