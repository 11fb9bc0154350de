"""The tutorial runs, and what it teaches is so; the contract of attention that it hands out finds the bugs."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import batch, choices, compose, network
from commands import ROOT

import nmt
from nmt.configuration import build
from nmt.model.attention import Attention
from nmt.model.attention.contract import (
    can_look_at_one_word,
    does_not_see_padding,
    is_a_distribution,
)
from nmt.model.attention.dot import Dot

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
            "data.train=6000", "data.train=1000"
        )
    assert whole != [cell.source for cell in notebook.cells]
    client.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 8
    message = "".join(output.get("text", "") for output in outputs)
    broken, mended = message.split("first:\n")[1:3]
    assert re.match(r"  does_not_see_padding: padding gets", broken)
    assert "second:\n  is_a_distribution: weights sum to 0.99" in broken
    assert "third:\n  can_look_at_one_word: the greatest weight is 0." in broken
    assert mended.count("keeps all rules") == 4 and "can_look_at_one_word" in mended


def test_the_tutorial_is_kept_with_its_pictures_and_no_paths():
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert text.count("image/png") == 8
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


@pytest.mark.parametrize("normalizer", choices("normalizer"))
@pytest.mark.parametrize("score", [name for name in choices("attention") if name != "none"])
def test_every_attention_keeps_the_contract(score, normalizer):
    config = compose(
        f"attention={score}",
        f"normalizer={normalizer}",
        "decoder.hidden_size=12",
        "sizes.encoder=6",
    )
    attention = Attention(
        build.make(config, "attention", query_size=12, memory_size=12),
        normalizer=build.make(config, "normalizer"),
    )
    is_a_distribution(attention, 12, 12)
    does_not_see_padding(attention, 12, 12)


@pytest.mark.parametrize("score", ["dot", "general", "scaled_dot", "scaled_general"])
def test_products_can_look_at_one_word(score):
    made = build.make(compose(f"attention={score}"), "attention", query_size=12, memory_size=12)
    can_look_at_one_word(Attention(made), 12, 12)


def test_the_score_of_the_readme_keeps_the_contract():
    """With any initial weights."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(# nmt/model/attention/cosine\.py.*?)```", readme, re.DOTALL)[1]
    exec(code, names := {"__name__": "cosine"})
    for seed in range(50):
        torch.manual_seed(seed)
        made = Attention(names["Cosine"](query_size=10, memory_size=12))
        for rule in (is_a_distribution, does_not_see_padding, can_look_at_one_word):
            rule(made, 12, 10)


@pytest.mark.parametrize(
    ("normalizer", "broken"),
    [
        (lambda scores: scores.masked_fill(scores.isinf(), 0).softmax(-1), does_not_see_padding),
        (lambda scores: scores.softmax(-1) * 0.999, is_a_distribution),
        (
            lambda scores: scores.softmax(-1) * 3 - scores.softmax(-1).roll(1, -1) * 2,
            is_a_distribution,
        ),
        (
            lambda scores: scores.tanh().masked_fill(scores.isinf(), -float("inf")).softmax(-1),
            can_look_at_one_word,
        ),
    ],
)
def test_the_contract_finds_bugs(normalizer, broken):
    with pytest.raises(AssertionError):
        broken(Attention(Dot(query_size=12, memory_size=12), normalizer=normalizer), 12, 12)
