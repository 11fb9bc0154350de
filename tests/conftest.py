"""Shapes and types in nmt's signatures are executed: a wrong one fails the test that passes through it."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from jaxtyping import install_import_hook

install_import_hook("nmt", "typechecker.check")

import pytest
import torch
from builders import compose

from nmt.configuration import build


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory):
    """A finished run on the reverse task, a few updates long."""
    from nmt.task.translation import Translation
    from nmt.training import run as training

    folder = tmp_path_factory.mktemp("runs") / "small"
    config = compose("data=reverse", "data.train=200", "data.validation=20", "data.test=20", "trainer.max_epochs=2")
    config["decoder"]["hidden_size"], config["encoder"]["hidden_size"] = 32, 16
    config["decoder"]["readout_size"] = config["model"]["embedding_size"] = config["attention"]["size"] = 16
    training.start(Translation, {**config, "run_dir": str(folder)}, str(folder))
    return folder


@pytest.fixture
def tiny_config():
    """The default configuration, with a network small enough for finite differences."""
    return compose(*TINY)


TINY = (
    "model.embedding_size=6", "encoder.hidden_size=4", "decoder.hidden_size=8", "decoder.readout_size=6",
    "model.dropout=0", "model.readout_dropout=0", "encoder.dropout=0", "decoder.dropout=0", "attention.size=5",
)  # fmt: skip
__all__ = ["build"]
