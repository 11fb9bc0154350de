"""Runs of an older version still translate, classify and continue (tests/before)."""

import importlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from commands import run
from safetensors.torch import load_file

import nmt
from nmt.inference.text_classifier import TextClassifier
from nmt.inference.translator import Translator
from nmt.storage import checkpoint as ckpt
from nmt.storage import upgrade

BEFORE = Path(__file__).parent / "before"


def test_what_was_translated_is_translated_again(tmp_path):
    result = run(
        "translate",
        f"model={BEFORE}/translation",
        f"input={BEFORE}/sentences.txt",
        f"output={tmp_path}/out",
        "format=jsonl",
    )
    assert result.returncode == 0, result.stderr.decode()
    ours, theirs = (
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in (tmp_path / "out", BEFORE / "translation.jsonl")
    )
    assert len(ours) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert [h["text"] for h in one["hypotheses"]] == [h["text"] for h in other["hypotheses"]]
        for a, b in zip(one["hypotheses"], other["hypotheses"], strict=True):
            assert a["tokens"] == b["tokens"]
            assert a["token_log_probs"] == pytest.approx(b["token_log_probs"], abs=1e-4)
            for row, old in zip(a["alignment"]["weights"], b["alignment"]["weights"], strict=True):
                assert row == pytest.approx(old, abs=1e-4)


def test_what_was_classified_is_classified_again(tmp_path):
    result = run(
        "label",
        f"model={BEFORE}/classification",
        f"input={BEFORE}/texts.txt",
        f"output={tmp_path}/out",
        "format=jsonl",
    )
    assert result.returncode == 0, result.stderr.decode()
    ours, theirs = (
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in (tmp_path / "out", BEFORE / "classification.jsonl")
    )
    for one, other in zip(ours, theirs, strict=True):
        assert one["labels"] == other["labels"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-4)
        assert one["importances"] == pytest.approx(other["importances"], abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "command"), [("translation", "train"), ("classification", "classify")]
)
def test_a_run_continues_as_it_would_have(tmp_path, kind, command):
    """The second epoch moves the weights as far as in the older version, whose dropout had other random numbers."""
    folder = tmp_path / kind
    shutil.copytree(BEFORE / kind, folder)
    shutil.copy(BEFORE / "reviews.tsv", tmp_path)
    result = run(command, f"resume={folder}", "trainer.max_epochs=2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr.decode()
    saved = ckpt.read(folder / ckpt.LAST)
    assert saved.meta["training"]["progress"]["epoch"] == 2
    assert saved.meta["format"] == ckpt.FORMAT
    expected = load_file(BEFORE / f"{kind}_resumed.safetensors")
    assert {name for name in saved.tensors if name.startswith("model/")} == set(expected)
    before = ckpt.read(BEFORE / kind / ckpt.LAST).tensors
    moved = {name: torch.dist(tensor, before[name]) for name, tensor in expected.items()}
    here = {name: torch.dist(before[name], saved.tensors[name]) for name in expected}
    assert 0.7 < sum(here.values()) / sum(moved.values()) < 1.4


def test_load_gives_what_a_checkpoint_is():
    assert isinstance(nmt.load(BEFORE / "translation"), Translator)
    assert isinstance(nmt.load([BEFORE / "translation"] * 2), Translator)
    assert isinstance(nmt.load(str(BEFORE / "classification")), TextClassifier)
    with pytest.raises(nmt.UserError, match="a classifier takes no options, got precision"):
        nmt.load(BEFORE / "classification", precision="int8")
    with pytest.raises(nmt.UserError, match="cannot be part of an ensemble"):
        nmt.load([BEFORE / "classification"] * 2)
    with pytest.raises(nmt.UserError, match="give at least one run folder"):
        nmt.load([])


def test_the_longest_renamed_prefix_counts(monkeypatch):
    """Whatever the order of the table; a path that has moved twice is found, and current paths stay."""
    table = {"a": "b", "a.x": "c", "a.x.y": "a.z.y", "b.z": "d"}
    for rows in (table, dict(reversed(table.items()))):
        monkeypatch.setattr(upgrade, "RENAMED", rows)
        assert upgrade.renamed("a.x.y.Name") == "d.y.Name"
        assert upgrade.renamed("a.x.Name") == "c.Name"
        assert upgrade.renamed("a.w.Name") == "b.w.Name"
        assert upgrade.renamed("ab.Name") == "ab.Name"


@pytest.mark.parametrize("path", sorted(upgrade.RENAMED.values()))
def test_renamed_paths_are_current(path):
    assert upgrade.renamed(path) == path
    importlib.import_module(path if path.rpartition(".")[2].islower() else path.rpartition(".")[0])
