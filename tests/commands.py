"""Commands as people type them, run inside the test's own process: starting Python and torch costs more than most of them."""

import contextlib
import importlib
import io
import logging
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import forked
import pytest
from typechecker import unchecked

import nmt
from nmt.sweep import job

ROOT = Path(nmt.__file__).parent.parent


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: bytes
    stderr: bytes


def run(module, *arguments, cwd=None, stdin="", env=None) -> Result:
    """`python -m nmt.{module} …`: what it prints, and its exit status. The runs of a sweep are forks of this process."""
    main = importlib.import_module(f"nmt.{module}").main
    processes = SimpleNamespace(**{**vars(subprocess), "Popen": forked.popen})
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    logger = logging.getLogger("nmt")
    _quiet(logger)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(data)
        files[0].seek(0)
        streams = [io.TextIOWrapper(file, encoding="utf-8", write_through=True) for file in files]
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            stack.enter_context(mock.patch.object(sys, name, stream))
        stack.enter_context(mock.patch.object(sys, "argv", [f"nmt.{module}", *map(str, arguments)]))
        stack.enter_context(mock.patch.dict(os.environ, env or {}))
        stack.enter_context(mock.patch.object(job, "subprocess", processes))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        stack.enter_context(unchecked())
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            status = 1
        _quiet(logger)
        printed = []
        for stream, file in zip(streams, files, strict=True):
            if not stream.closed:
                stream.flush()
                file.seek(0)
                printed.append(file.read())
                stream.detach()
            else:
                printed.append(b"")
    return Result(status, *printed[1:])


def _quiet(logger: logging.Logger) -> None:
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        handler.close()


def run_alone(
    module, *arguments, cwd=None, stdin="", env=None
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command in a new process."""
    command = [sys.executable, "-m", f"nmt.{module}", *map(str, arguments)]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default", **(env or {})}
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    return subprocess.run(command, input=data, capture_output=True, cwd=cwd, env=variables)


@contextlib.contextmanager
def small_disk(folder, size):
    """An empty file system of a size such as 24k; skips the test if none can be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here; mounting needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def failed(result, *expected) -> str:
    """A friendly failure: an exit status of conf/README.md, no traceback, the expected words on stderr."""
    errors = result.stderr.decode()
    assert result.returncode in (1, 2, 74, 75), errors
    assert "Traceback" not in errors, errors
    for words in expected:
        assert words in errors, errors
    return errors
