"""The tutorial runs, and its checks of attention find the bugs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import batch, network
from commands import ROOT

import nmt
from nmt.analysis.attention_check import check_attention

NOTEBOOK = Path(nmt.__file__).with_name("tutorial.ipynb")


@pytest.mark.exhaustive
def test_the_tutorial_runs(tmp_path):
    """Every cell, in order; with one epoch instead of seven, so that the networks are worse."""
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat, nbclient and ipykernel")
    client = pytest.importorskip("nbclient", reason="needs nbformat, nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs nbformat, nbclient and ipykernel")
    notebook = nbformat.read(NOTEBOOK, 4)
    whole = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        cell.source = cell.source.replace("max_epochs=7", "max_epochs=1").replace(
            "data.train=6000", "data.train=300"
        )
    assert whole != [cell.source for cell in notebook.cells]
    client.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 8
    message = "".join(output.get("text", "") for output in outputs)
    heads = re.findall(r"^([\w, =]+): ", message, re.MULTILINE)
    assert heads == [
        "correct",
        *("first", "padding gets no weight"),
        *("second", "weights are a distribution"),
        *("third", "one word can get all weight"),
        *("first", "second", "third"),
        *("cosine, g = 1", "one word can get all weight"),
        "cosine, g learnt",
    ]


def test_the_tutorial_is_kept_with_its_pictures_and_no_paths():
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text.count('"image/png": "') == 8
    assert "/tmp" not in text and "/home" not in text


@pytest.mark.parametrize(("decoder", "delay"), [("bahdanau", 2), ("conditional", 1), ("luong", 1)])
def test_a_written_word_changes_the_attention_after_a_delay(decoder, delay):
    """Bahdanau's state attends before it reads the previous word; the other decoders read it first."""
    model = network(decoder, "general")
    data = batch((5,), (6,))
    before = model.teacher_forcing(data)[0].weights[0]
    changed = data.inputs.clone()
    position = 2  # an input: the word written at step 1
    changed[0, position] = 4 + (changed[0, position] - 3) % 6
    after = model.teacher_forcing(replace(data, inputs=changed))[0].weights[0]
    differs = (before - after).abs().amax(-1) > 1e-6
    assert differs.tolist() == [t >= position + delay - 1 for t in range(len(differs))]


def test_the_score_of_the_readme_keeps_all_laws():
    """With any initial weights."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(# nmt/model/attention/cosine\.py.*?)```", readme, re.DOTALL)[1]
    exec(code, names := {"__name__": "cosine"})
    for seed in range(20):
        torch.manual_seed(seed)
        verdict = check_attention(names["Cosine"](query_size=8, memory_size=16))
        assert not verdict.broken, verdict.text
