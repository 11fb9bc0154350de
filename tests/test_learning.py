"""Training learns: a task with a known answer, and its attention map."""

import json

import numpy as np
import pytest
from builders import trained

import nmt


@pytest.fixture(scope="module")
def reverser(tmp_path_factory):
    return trained(
        tmp_path_factory.mktemp("reverse") / "run", "experiment=reverse", "data.train=2000", "data.max_length=5",
        "data.symbols=6", "model.embedding_size=32", "sizes.encoder=48",
        "sizes.decoder=96", "sizes.readout=32", "model.dropout=0", "model.readout_dropout=0", "optimizer.lr=0.01",
        "trainer.max_epochs=3", "objective.label_smoothing=0", "search=greedy", "batching.sentences=20", "metric=loss",
        "max_validation=20",
    )  # fmt: skip


@pytest.mark.exhaustive
def test_reversal_is_learnt(reverser):
    results = json.loads((reverser / "results.json").read_text())
    assert results["scores"]["exact"]["score"] > 99


@pytest.mark.exhaustive
def test_attention_is_the_anti_diagonal(reverser):
    translator = nmt.load(reverser)
    lines = ["a b c d e", "f e c", "c a b d"]
    for result in translator.translations(lines, details_of=1):
        [forced] = result.details
        words = len(forced.weights) - 1
        assert np.argmax(forced.weights[:words], 1).tolist() == list(range(words))[::-1]
