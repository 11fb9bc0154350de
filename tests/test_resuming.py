"""A training that was stopped and resumed is the uninterrupted one, bit for bit: for every objective, and whatever else has a
state or draws random numbers. Kills at any moment: test_trainer.py; mixtures at any update: test_mix.py."""

import pytest
import torch
from builders import choices, resumed, trained

from nmt.foundation.errors import Stopped
from nmt.storage import checkpoint as ckpt

SMALL = [
    "sizes.encoder=8", "sizes.decoder=8", "sizes.readout=6", "model.embedding_size=6", "batching.sentences=10", "max_validation=2",
    "search=greedy", "trainer.max_epochs=2", "translation.max_length_factor=0.2", "translation.max_length_offset=3",
]  # fmt: skip
WORDS = ["experiment=reverse", "data.train=30", "data.validation=4", "data.test=2", *SMALL]
PICTURES = [
    "experiment=read_digits", "data.train=20", "data.validation=4", "data.test=2", "data.numbers=1", "sizes.vocabulary=60",
    "encoder.widths=[4,8]", "encoder.halvings=2", *SMALL,
]  # fmt: skip
CASES = {
    "unigram": [*WORDS, "tokenizer=unigram", "tokenizer.sampling=0.3"],
    "bpe": [*WORDS, "tokenizer=bpe", "tokenizer.sampling=0.3"],
    "averages": [*WORDS, "trainer.ema=0.9", "trainer.average=2", "trainer.accumulate=2", "schedule=plateau"],
    "dropout": [*WORDS, "model.dropout=0.2", "model.word_dropout=0.1", "model.variational_dropout=true"],
    "copied pairs": [*WORDS, "copied_pairs=0.5"],
    "pictures": PICTURES,
    "reinforcement": [*PICTURES, "window=hard", "window.estimator=reinforce"],
    **{f"objective={name}": [*WORDS, "model.dropout=0.1", f"objective={name}"] for name in choices("objective")},
}  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(name, marks=[] if name == "unigram" else [pytest.mark.exhaustive])
        for name in CASES
    ],
)
def test_what_was_stopped_continues_bit_for_bit(case, small_run, tmp_path):
    typed = list(CASES[case])
    if case == "objective=distillation":
        typed.append(f"objective.teacher={small_run}")
    if case == "objective=minimum_risk":  # samples of an untrained network are all long
        typed += [f"init={small_run}", "objective.candidates=3"]
        typed = [text for text in typed if not text.startswith(("sizes.", "model.embedding"))]
    whole = trained(tmp_path / "whole", *typed)
    with pytest.raises(Stopped):
        trained(tmp_path / "part", *typed, "trainer.stop_after=1")
    resumed(tmp_path / "part", "trainer.stop_after=0")
    for name in (ckpt.LAST, ckpt.BEST):
        ours, truth = (ckpt.read(folder / name).tensors for folder in (tmp_path / "part", whole))
        assert ours.keys() == truth.keys()
        assert [key for key in truth if not torch.equal(ours[key], truth[key])] == []
    if case == "reinforcement":
        assert any(key.endswith("window.usual") for key in truth), "the baseline is saved"
