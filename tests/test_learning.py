"""Training learns: a task with a known answer, and its attention map."""

import json

import numpy as np
import pytest
from builders import compose

from nmt import Translator
from nmt.task.translation import Translation
from nmt.training import run as training


@pytest.fixture(scope="module")
def reverser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reverse") / "run"
    config = compose(
        "data=reverse", "model.embedding_size=32", "encoder.hidden_size=48", "decoder.hidden_size=96",
        "decoder.readout_size=32", "model.dropout=0", "model.readout_dropout=0", "optimizer.lr=0.005",
        "trainer.max_epochs=12", "objective.label_smoothing=0", "search=greedy", "batching.sentences=40",
    )  # fmt: skip
    training.start(Translation, {**config, "run_dir": str(folder)}, str(folder))
    return folder


def test_reversal_is_learnt(reverser):
    results = json.loads((reverser / "results.json").read_text())
    assert results["scores"]["exact"]["score"] > 99


def test_attention_is_the_anti_diagonal(reverser):
    translator = Translator.load(reverser)
    lines = ["a b c d e f", "j i h g f e d", "c a b d"]
    found = translator.translations(lines)
    for forced in translator.force([t.source for t in found], [t.hypotheses[0].tokens for t in found]):
        words = len(forced.weights) - 1
        assert np.argmax(forced.weights[:words], 1).tolist() == list(range(words))[::-1]
