"""Shapes and types in nmt's signatures are executed: a wrong one fails the test that passes through it. They are not executed
inside trainings and commands (builders.py, commands.py), which would take twice as long, and in exhaustive tests."""

import gc
import logging
import os
import pkgutil
import shutil
import signal
import threading
from collections import Counter

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# One thread for each test and for the processes that it starts: tests run side by side, and a fork has no other threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import typechecker
import yaml
from jaxtyping import install_import_hook

TENSORS = (
    "nmt.model",
    "nmt.search",
    "nmt.training.objective",
    "nmt.inference.model_step",
    "nmt.inference.explanations.explanation",
    "nmt.foundation.interfaces",
    "nmt.data.labels",
)
"""Packages and modules with shapes in their signatures; mypy checks the types of all others."""
# OmegaConf reads files with this loader. The one in C is ten times as fast.
yaml.SafeLoader = yaml.CSafeLoader

# Under nohup or in the background, signals are ignored. The tests and their processes are not.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# NMT_SHAPES=0 skips the hook: quicker to start, for single tests while one works on the code.
if os.environ.get("NMT_SHAPES") != "0":
    install_import_hook(TENSORS, "typechecker.check")

import forked
import psutil
import pytest
import torch
from builders import trained

from nmt.model.native import kernel_library


@pytest.fixture(autouse=True)
def _as_if_alone():
    """Seeds torch, and undoes what commands of earlier tests have set for logging."""
    torch.default_generator.manual_seed(0)  # quicker than torch.manual_seed, which also seeds GPUs
    logging.getLogger("nmt").propagate = True
    for name, logger in list(logging.root.manager.loggerDict.items()):
        is_ours = name == "nmt" or name.startswith("nmt.")
        if is_ours and isinstance(logger, logging.Logger) and logger.level:
            logger.setLevel(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def _unsynced():
    """Nothing here loses power: what is written is not forced on the disk. Tests of that have an fsync of their own."""
    os.fsync, before = lambda _: None, os.fsync
    yield
    os.fsync = before


@pytest.fixture(scope="session", autouse=True)
def _extension():
    """Loads the C++ extension before a test sets NMT_CACHE to an empty folder, in which it would be compiled again."""
    kernel_library.library()


@pytest.fixture(autouse=True)
def _signatures(request):
    """Signatures are not executed in exhaustive and slow tests: each part passes the default tests with them."""
    typechecker.begin_test()
    with typechecker.unchecked(any(map(request.node.get_closest_marker, ("exhaustive", "slow")))):
        yield


UNSEEN = {f"test_{name}" for name in (
    "arguments", "backtranslate", "choices", "columns", "copied_pairs", "data", "durability", "fine_tuning", "learning", "lexicon",
    "limits", "messages", "mix", "objectives", "old_checkpoints", "plugins", "python_training", "ranks", "repeat", "resuming",
    "sampling", "search", "shared_output", "store", "streams", "sweep", "trainer", "translator",
)}  # fmt: skip
"""Files that train often and test no picture. Drawing would take most of the time of a tiny run."""


PICTURES = (
    "nmt.drawing.plots.learning_curve",
    "nmt.training.task.translation_task.TranslationTask.draw",
    "nmt.training.tracker.installed",  # matplotlib, for the pictures of a tracker
)
"""Functions that draw the pictures of a run."""
_drawn = {}
"""The functions of PICTURES before they were replaced."""


@pytest.fixture(scope="module", autouse=True)
def _drawing(request):
    with pytest.MonkeyPatch.context() as patch:
        for name in PICTURES if request.module.__name__ in UNSEEN else ():
            _drawn.setdefault(name, pkgutil.resolve_name(name))
            patch.setattr(name, lambda *_: None)
        yield


@pytest.fixture
def unchecked():
    """Signatures are not executed in this test."""
    with typechecker.unchecked():
        yield


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """A finished run on the reverse task, a few updates long, with its pictures."""
    with pytest.MonkeyPatch.context() as patch:
        for (
            name,
            function,
        ) in _drawn.items():  # the first test with this run may be in a file of UNSEEN
            patch.setattr(name, function)
        return trained(
            tmp_path_factory.mktemp("runs") / "small", "experiment=reverse", "data.train=200", "data.validation=20",
            "data.test=20", "trainer.max_epochs=2", "sizes.encoder=16", "sizes.decoder=32", "sizes.readout=16",
            "model.embedding_size=16", "attention.size=16",
        )  # fmt: skip


@pytest.fixture
def fork(tmp_path):
    """Starts `python -m nmt.MODULE ARGUMENT …` as a fork (forked.py), which is gone when the test ends; it prints to fork.log,
    which pytest shows if the test fails, with the stacks of a process that did not end."""
    started = []
    log = tmp_path / "fork.log"

    def begin(module, *arguments):
        started.append(forked.start(log, module, *arguments))
        return started[-1]

    yield begin
    for process in started:
        if isinstance(process, forked.Forked):
            process.end_with_stacks()
        process.kill()
        process.wait()
    if started:
        print(log.read_text(errors="replace"))


@pytest.fixture(autouse=True)
def _browser_limit(request):
    """Kills a browser before the limit of pyproject.toml, because Playwright cannot continue after the exception of a signal."""

    if "browser" not in request.fixturenames:
        yield
        return

    def kill():
        for child in psutil.Process().children(recursive=True):
            child.kill()

    timer = threading.Timer(float(request.config.getini("timeout")) - 60, kill)
    timer.start()
    yield
    timer.cancel()


@pytest.fixture(scope="module")
def browser():
    """Chromium."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pages are tested in Chromium by playwright"
    )
    program = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if program is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


LONGEST = (
    "html", "sweep", "choices", "other_device", "capture", "ranks", "config", "clusters", "serve", "serve_operation", "decoders",
    "durability", "report", "pictures", "native_decoding", "objectives", "export", "shared_output", "command_line", "trainer",
    "translator", "networks", "streams", "classification", "columns", "fine_tuning", "backtranslate",
)  # fmt: skip
"""Files that take longest. They come first, so that all processes end at about the same time."""


@pytest.hookimpl(tryfirst=True)  # before the selection by -m
def pytest_collection_modifyitems(items):
    default = {
        _function(item)
        for item in items
        if not {"slow", "exhaustive"} & {mark.name for mark in item.iter_markers()}
    }
    for item in items:
        if item.get_closest_marker("exhaustive") and _function(item) in default:
            item.add_marker("combination")
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(0))  # the limit of pyproject.toml is for the others
    places = {f"test_{name}": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.module.__name__, len(places)))


def _function(item):
    return item.nodeid.partition("[")[0]


def pytest_collection_finish():
    gc.freeze()  # imported objects stay, so the collector can skip them


def pytest_terminal_summary(terminalreporter, config):
    """Prints what was not run and why; then, last, each failure with the command that repeats it alone."""
    write, stats = terminalreporter.write_line, terminalreporter.stats
    skipped = Counter(_reason(report) for report in stats.get("skipped", []))
    for reason, count in skipped.most_common():
        write(f"not run: {count} x {reason}")
    if "not exhaustive" in config.option.markexpr:
        write("not run: the exhaustive tests (scripts/test --all)")
    for report in [*stats.get("failed", []), *stats.get("error", [])]:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash else str(report.longrepr)
        write("")
        for line in message.splitlines()[:6]:
            write(f"  {line[:200]}")
        write(f"  repeat: .venv/bin/python -m pytest -n 0 -m '' '{report.nodeid}'")


def _reason(report):
    text = report.longrepr[-1] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
