"""Commands in a fork of the test's process, which has imported torch and nmt already: a new process costs three seconds."""

import contextlib
import faulthandler
import functools
import importlib
import io
import logging
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import warnings
from types import SimpleNamespace

import torch
from hydra.core.global_hydra import GlobalHydra
from typechecker import unchecked

from nmt.configuration import compose, yaml_files
from nmt.foundation import plugins
from nmt.sweep import job


def popen(command, **settings):
    """As subprocess.Popen, for `python -m MODULE …`; by a fork if no other thread of torch can be lost in it."""
    if torch.get_num_threads() > 1:
        return subprocess.Popen(command, **settings)
    _prepare()
    return Forked(command, **settings)


@functools.cache
def _prepare():
    """Imports and composes once what each training needs, so that no fork has to."""
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        for name in (
            "torch._dynamo", "nmt.pipeline.run_training", "nmt.pipeline.sweep_command", "sacrebleu.metrics", "nmt.drawing.plots",
            "torch.utils.tensorboard",
        ):  # fmt: skip
            importlib.import_module(name)
    compose.compose("train", ())


def start(output, module, *arguments):
    """Starts `python -m nmt.MODULE ARGUMENT …`; all that it prints goes to the file `output`."""
    command = [sys.executable, "-m", f"nmt.{module}", *map(str, arguments)]
    with open(output, "wb") as file:
        return popen(command, stdout=file, stderr=subprocess.STDOUT, env=dict(os.environ))


class Forked:
    """The part of subprocess.Popen that sweeps use."""

    def __init__(self, command, *, stdout, env, **_):
        assert command[:2] == [sys.executable, "-m"]
        self._process = multiprocessing.get_context("fork").Process(
            target=_run, args=(command[2:], stdout.fileno(), env)
        )
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        return self._process.exitcode

    @property
    def returncode(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("fork", timeout)
        return self._process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self._process.kill()

    def end_with_stacks(self):
        """Ends the process after it has printed what each of its threads does."""
        if self.poll() is None:
            self.send_signal(signal.SIGUSR1)
            self._process.join(2)
            self.kill()


def _run(words, output, environment):
    """Runs a module as `python -m` would: only the environment reaches it."""
    os.setsid()
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(1, "wb", 0), write_through=True)
    faulthandler.register(signal.SIGUSR1, file=1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(environment)
    for logger in (logging.getLogger(), logging.getLogger("nmt")):
        logger.handlers.clear()
    yaml_files.added_folders.clear()
    plugins._of_process.clear()
    plugins._of_context.set(())
    GlobalHydra.instance().clear()
    job.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": popen})
    warnings.simplefilter("ignore")  # runpy: the module has been imported
    sys.argv = words
    with unchecked():
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
