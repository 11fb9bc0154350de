"""nmt trains and translates without the packages that are extras, and names the extra where one is missing."""

import json
import os
import re
import subprocess
import sys

import pytest
from builders import PICTURED, choices, compose
from commands import ROOT

WITHOUT = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @staticmethod
    def find_spec(name, path=None, target=None):
        absent = ("matplotlib", "tensorboard", "datasets", "pyarrow", "pandas", "babel", "num2words",
                  "starlette", "uvicorn", "prometheus_client", "onnx", "huggingface_hub")
        return None if name.split(".")[0] in absent else PathFinder.find_spec(name, path, target)

sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
"""


def without(code, cwd):
    """Runs code in a Python that has no extras."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.exhaustive
def test_everything_but_pictures_works_without_extras(tmp_path):
    for side in ("en", "de"):
        (tmp_path / f"t.{side}").write_text("".join(f"{side} {i % 7} {i % 5}\n" for i in range(60)))
    text = "['data=text', 'data.train=t', 'data.split=0.1', 'data.source=en', 'data.target=de', 'run_dir=OUT', 'sizes.encoder=4'"
    code = f"""
import json
from nmt.configuration.configure import configure
from nmt.pipeline.run_training import train
train(configure("train", {text}, 'sizes.decoder=8', 'sizes.readout=8', 'model.embedding_size=8', 'sizes.vocabulary=30',
                          'trainer.max_epochs=1']))
import nmt
said = []
for arguments in (["translate", "model=OUT", "attention_map=x.png"],):
    try:
        configure(arguments[0], arguments[1:])
    except nmt.UserError as error:
        said.append(str(error))
from nmt import export, serve
for command, arguments in (("serve", ["model=OUT"]), ("export", ["model=OUT", "format=onnx", "output=graphs"]),
                           ("export", ["model=hf:someone/model", "format=card", "output=card"])):
    try:
        {{"serve": serve, "export": export}}[command].run(configure(command, arguments))
    except nmt.UserError as error:
        said.append(str(error))
translator = nmt.load("OUT")
try:
    translator.attention("en 1 2").plot()
except nmt.UserError as error:
    said.append(str(error))
print(json.dumps({{"said": said, "answer": translator.translate("en 1 2"), "loaded": sorted(sys.modules)}}))
"""
    done = without(code, tmp_path)
    assert done.returncode == 0, done.stderr
    messages = json.loads(done.stdout.splitlines()[-1])
    for message, extra in zip(
        messages["said"], ("plots", "serve", "export", "hub", "plots"), strict=True
    ):
        assert f"pip install '.[{extra}]'" in message
    assert "pip install '.[plots,tensorboard]'" in done.stderr
    assert "tensorboard --logdir" not in done.stderr
    files = {path.name for path in (tmp_path / "OUT").iterdir()}
    assert "attention.html" in files and not {
        name for name in files if name.endswith(".png") or name.startswith("events")
    }


def test_translating_loads_no_extra_and_nothing_of_training(small_run):
    code = f"""
import json, sys, nmt, torch
nmt.load({str(small_run)!r}).translate("a b")
print(json.dumps([*sys.modules]))
from nmt.components import network
from nmt.model.uninitialized import Uninitialized
for choice, config in json.load(sys.stdin).items():
    with torch.device("meta"), Uninitialized():
        network(config, 10, 10)
    assert "torch._dynamo" not in sys.modules, choice
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(_networks()),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
    )
    loaded = {name.split(".")[0] for name in json.loads(done.stdout)}
    assert not loaded & {
        "matplotlib",
        "tensorboard",
        "datasets",
        "pyarrow",
        "pandas",
        "babel",
        "num2words",
        "sacrebleu",
    }
    assert "torch._dynamo" not in json.loads(done.stdout)  # takes as long to import as torch


def _networks():
    """A configuration for each choice of each part of a translation network."""
    needed = {"fixed": ["attention=none"], "none": ["decoder=fixed"]}
    needed |= dict.fromkeys(("monotonic", "sparsemax", "entmax15"), ["attention=general"])
    groups = ("attention", "window", "normalizer", "encoder", "decoder")
    return {
        f"{group}={name}": compose(f"{group}={name}", *needed.get(name, []))
        for group in groups
        for name in choices(group)
        if name not in {*PICTURED, "normed_concat"}  # normed_concat computes a norm
    }


def test_no_message_names_another_project():
    """The name `nmt` on the package index belongs to others: no advice and no card names it."""
    files = [ROOT / "README.md", *ROOT.glob("conf/**/*.*"), *ROOT.glob("nmt/**/*.*")]
    for file in files:
        if file.suffix in (".py", ".md", ".yaml", ".ipynb", ".html", ".js"):
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"install '?nmt\b|pypi\.org/project/nmt\b", text), file
    assert 'name = "nmt"' not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
