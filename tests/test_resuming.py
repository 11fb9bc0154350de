"""A training that was stopped and resumed is the uninterrupted one, bit for bit: for every objective, and whatever else has a
state or draws random numbers. Kills at any moment: test_trainer.py; mixtures at any update: test_mix.py."""

import json
import math

import pytest
import torch
from builders import choices, resumed, trained

from nmt.configuration.configure import configure_single
from nmt.foundation.errors import Stopped, UserError
from nmt.pipeline.resumed_training import _changes_scores
from nmt.storage import checkpoint as ckpt
from nmt.storage.averaging import average_checkpoints
from nmt.training.run_directory import RunDirectory
from nmt.training.state import TrainingState

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
    "bpe, copied pairs": [*WORDS, "tokenizer=bpe", "tokenizer.sampling=0.3", "copied_pairs=0.5"],
    "averages, dropout": [
        *WORDS, "trainer.ema=0.9", "trainer.average=2", "trainer.accumulate=2", "schedule=plateau",
        "model.dropout=0.2", "model.word_dropout=0.1", "model.variational_dropout=true",
    ],
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


def test_a_longer_training_is_tested_although_its_test_was_interrupted(tmp_path, monkeypatch):
    folder = trained(tmp_path / "run", *WORDS)

    def interrupted(*_):
        raise KeyboardInterrupt

    # In the test, and while its figures are drawn
    for number, method in enumerate(("test", "draw")):
        with monkeypatch.context() as patch:
            patch.setattr(
                f"nmt.training.task.translation_task.TranslationTask.{method}", interrupted
            )
            with pytest.raises(Stopped):
                resumed(folder, f"trainer.max_epochs={4 + number}")
        resumed(folder)
        results = json.loads((folder / "results.json").read_text())
        assert results["updates"] == 12 + 3 * number
        log = (folder / "train.log").read_text()
        assert log.count("fingerprint of its weights") == number + 2


def test_a_run_that_ended_by_patience_or_time_is_finished(tmp_path, caplog):
    for name, typed, key in (
        ("patience", ["trainer.max_epochs=9", "trainer.patience=1", "optimizer.lr=1e-9"], "trainer.patience"),
        ("time", ["trainer.max_epochs=900000", "time_budget=1s"], "time_budget"),
    ):  # fmt: skip
        folder = trained(tmp_path / name, *WORDS, *typed)
        files = {file: file.stat().st_mtime_ns for file in folder.glob("*.*")}
        with caplog.at_level("INFO", "nmt"):
            trained(folder, *WORDS, *typed, "resume=auto")
        changed = [file.name for file, time in files.items() if file.stat().st_mtime_ns != time]
        assert set(changed) <= {"train.log"}, (folder / "train.log").read_text()
        assert f"raise {key}" in (folder / "train.log").read_text()


def test_a_time_budget_can_be_given_on_resume(tmp_path):
    folder = trained(tmp_path / "run", *WORDS)
    resumed(folder, "trainer.max_epochs=900000", "time_budget=3s")
    saved = ckpt.read(folder / ckpt.LAST).meta
    assert saved["config"]["trainer"]["time_budget"] == "3s"
    assert 6 < saved["training"]["progress"]["update"] < 900_000
    for prefix in ("", "+", "++"):  # the single key has precedence
        words = [f"resume={folder}", "time_budget=1h", f"{prefix}trainer.time_budget=30m"]
        assert configure_single("train", words).trainer["time_budget"] == "30m"


def test_another_metric_without_a_validation(tmp_path):
    folder = trained(tmp_path / "run", *WORDS, "final_test=false")
    resumed(folder, "metric=ter", "final_test=true")
    assert "ter" in json.loads((folder / "results.json").read_text())["scores"]


def test_a_new_run_does_not_replace_the_rest_of_another(tmp_path):
    folder = trained(tmp_path / "run", *WORDS)
    for name in (ckpt.LAST, ckpt.BEST):
        (folder / name).unlink()
    files = {file.name for file in folder.iterdir()}
    with pytest.raises(UserError, match="files of another run"):
        trained(folder, *WORDS)
    assert {file.name for file in folder.iterdir()} == files


def test_a_missing_file_of_the_best_weights_is_named_before_the_training(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        trained(folder, *WORDS, "trainer.stop_after=1")
    (folder / ckpt.BEST).unlink()
    with pytest.raises(UserError, match=r"best\.safetensors not found, .*copy it into the folder"):
        resumed(folder, "trainer.stop_after=0")


def test_a_changed_setting_survives_a_kill_before_the_next_save(tmp_path, monkeypatch):
    folder = trained(tmp_path / "run", *WORDS)  # 2 epochs of 3 updates

    def killed(loop, share, total):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nmt.training.training_loop.TrainingLoop._update", killed)
        with pytest.raises(KeyboardInterrupt):
            resumed(folder, "trainer.max_epochs=4")
    resumed(folder)
    assert ckpt.read(folder / ckpt.LAST).meta["training"]["progress"]["update"] == 12


def test_a_rollback_of_a_resumed_run_has_its_settings(tmp_path, monkeypatch):
    """Without a state saved by the resumed run, the rollback would restore the end of the first run."""
    folder = trained(tmp_path / "run", *WORDS)
    original, norms = TrainingState.gradient_norm, iter([math.nan])
    monkeypatch.setattr(
        TrainingState,
        "gradient_norm",
        lambda *settings: torch.tensor(next(norms, 0)) + original(*settings),
    )
    resumed(folder, "trainer.max_epochs=4", "trainer.on_nan=rollback", "metric=ter")
    progress = ckpt.read(folder / ckpt.LAST).meta["training"]["progress"]
    assert progress["update"] == 12 and progress["halvings"] == 1
    assert progress["best_update"] > 6, "the score of the earlier metric is not compared"


def test_keys_newer_than_a_checkpoint_have_their_defaults(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        trained(folder, *WORDS, "trainer.stop_after=1")
    saved = ckpt.read(folder / ckpt.LAST)
    for key in ("copied_pairs", "init_vocabulary"):
        saved.meta["config"].pop(key)
    saved.meta["config"]["filters"].pop("max_symbols")
    ckpt.write(folder / ckpt.LAST, saved.meta, saved.tensors)
    with pytest.raises(UserError, match=r"sizes\.encoder=9: this setting cannot change"):
        trained(folder, *WORDS, "resume=auto", "sizes.encoder=9")
    trained(folder, *WORDS, "resume=auto")
    assert ckpt.read(folder / ckpt.LAST).meta["training"]["progress"]["epoch"] == 2


def test_a_fault_after_a_validation_leaves_the_snapshots_of_the_saved_state(tmp_path, monkeypatch):
    def fault(files, update, epoch, *rest):
        if epoch == 3:
            raise RuntimeError("full")

    settings = ["metric=loss", "trainer.max_epochs=4", "trainer.average=2"]
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="full"):
        patch.setattr(RunDirectory, "on_validation", fault)
        trained(tmp_path / "run", *WORDS, *settings)
    resumed(tmp_path / "run")
    trained(tmp_path / "whole", *WORDS, *settings)
    names = [{file.name for file in (tmp_path / name).glob("snapshot-*")} for name in ("run", "whole")]  # fmt: skip
    assert names[0] == names[1] and len(names[0]) == 2


def test_missing_snapshots_are_named_before_the_training(tmp_path):
    folder = trained(tmp_path / "run", *WORDS, "trainer.average=2")
    [first, *_] = sorted(folder.glob("snapshot-*"))
    first.unlink()
    with pytest.raises(UserError, match=rf"{first.name} not found, .*set trainer\.average=0"):
        resumed(folder, "trainer.max_epochs=4")
    resumed(folder, "trainer.max_epochs=4", "trainer.average=0")


def test_scores_of_other_translation_limits_are_not_compared(tmp_path):
    folder = trained(tmp_path / "run", *WORDS, "final_test=false")
    resumed(folder, "trainer.max_epochs=3", "translation.batch_tokens=77")
    assert "are ignored" not in (folder / "train.log").read_text()
    resumed(folder, "trainer.max_epochs=4", "translation.max_length_offset=1")
    assert "translation has changed, so" in (folder / "train.log").read_text()
    assert ckpt.read(folder / ckpt.BEST).meta["update"] == 12


def test_the_cost_of_minimum_risk_stays(small_run, tmp_path):
    typed = [text for text in WORDS if not text.startswith(("sizes.", "model.embedding"))]
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        trained(
            folder, *typed, f"init={small_run}", "objective=minimum_risk", "objective.candidates=3",
            "metric=bleu", "metric.tokenize=none", "trainer.stop_after=1",
        )  # fmt: skip
    with pytest.raises(UserError, match=r"metric\.tokenize=auto: this setting cannot change"):
        resumed(folder, "metric=chrf")
    resumed(folder, "metric=chrf", "metric.tokenize=none", "trainer.stop_after=0")


def test_an_interrupted_validation_is_recorded_once(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Stopped):
        trained(folder, *WORDS, "trainer.stop_after=1")
    saved = ckpt.read(folder / ckpt.LAST)
    saved.meta["training"]["progress"] |= {
        "validating": True,
        "validated": 0,
        "epoch": 0,
        "batch": 3,
    }
    ckpt.write(folder / ckpt.LAST, saved.meta, saved.tensors)
    resumed(folder, "trainer.stop_after=0")
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "validation"]
    assert [record["update"] for record in records] == [3, 6]


def test_an_average_is_recorded_apart_from_the_last_validation(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "nmt.training.task.translation_task.TranslationTask.better", lambda *scores: True
    )
    folder = trained(tmp_path / "run", *WORDS, "trainer.average=2", "keep_validations=true")
    names = {file.name for file in folder.glob("validation-*")}
    numbers = ["00000003", "00000006", "00000006.average"]
    assert names == {f"validation-{number}.txt" for number in numbers}
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "validation"]
    assert [record.get("averaged", False) for record in records] == [False, False, True]
    # The snapshots are models.
    snapshots = [str(file) for file in folder.glob("snapshot-*")]
    average_checkpoints(models=snapshots, output=str(tmp_path / "mean.safetensors"))
    mean, best = ckpt.read(tmp_path / "mean.safetensors"), ckpt.read(folder / ckpt.BEST)
    torch.testing.assert_close(mean.weights, best.weights, rtol=0, atol=0)


def test_a_loss_does_not_depend_on_the_limits_of_translations(tmp_path):
    folder = trained(tmp_path / "run", *WORDS, "final_test=false", "metric=loss")
    resumed(folder, "translation.unknown=drop", "trainer.max_epochs=3", "optimizer.lr=3")
    assert ckpt.read(folder / ckpt.BEST).meta["update"] == 6


def test_an_averaged_run_is_tested_without_its_snapshots(tmp_path):
    folder = trained(tmp_path / "run", *WORDS, "trainer.average=2", "final_test=false")
    for file in folder.glob("snapshot-*"):
        file.unlink()
    resumed(folder, "final_test=true")
    assert (folder / "test.txt").exists()
    resumed(folder, "metric=ter", "trainer.max_epochs=4")  # begins with new snapshots


def test_changed_keys_that_change_scores():
    before = {"translation.max_length_offset": 3, "translation.batch_tokens": 9}

    def changes(key, score="bleu"):
        return _changes_scores(key, before, score)

    assert all(map(changes, ("max_validation", "metric.tokenize", "choose_by")))
    assert changes("translation.max_length_offset")
    assert not changes("translation.max_length_offset", "loss")
    assert not changes("translation.batch_tokens")
    assert not changes("optimizer.lr")
