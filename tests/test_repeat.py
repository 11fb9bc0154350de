"""Training a run again from its own record, and the description of a run."""

import json
import re
import shutil

import pytest
import torch
from commands import ROOT, failed, run

from nmt.configuration.configure import configure
from nmt.foundation.part_limits import ConfigErrors
from nmt.storage.checkpoint import BEST, read, weights_hash

TINY = [
    "experiment=reverse", "data.train=60", "data.validation=6", "data.test=5", "sizes.encoder=4", "sizes.decoder=6", "sizes.readout=4",
    "model.embedding_size=4", "trainer.max_epochs=2", "search=greedy",
]  # fmt: skip


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first") / "run"
    result = run("train", *TINY, "threads=1", f"run_dir={folder}")
    assert result.returncode == 0, result.stderr.decode()
    return folder, result.stderr.decode()


def printed(output: str) -> str:
    return re.search(r"weights ([0-9a-f]{16});", output)[1]


def test_equal_runs_have_equal_fingerprints(first, tmp_path):
    folder, output = first
    for source in (folder, folder / "config.yaml"):
        again = run("train", f"--from={source}", f"run_dir={tmp_path}/{source.name}")
        assert again.returncode == 0, again.stderr.decode()
        assert printed(again.stderr.decode()) == printed(output)
    other = run("train", f"--from={folder}", "seed=9", f"run_dir={tmp_path}/other")
    assert printed(other.stderr.decode()) != printed(output)
    results = json.loads((folder / "results.json").read_text())
    assert results["weights"] == printed(output) == weights_hash(read(folder / BEST).part("model"))


def test_a_changed_lexicon_is_warned_about(tmp_path):
    file = tmp_path / "words"
    file.write_text("a\tb\n")
    typed = ["trainer.max_updates=1", f"model.lexicon={file}", f"run_dir={tmp_path}/run"]
    assert run("train", *TINY, *typed).returncode == 0
    for text, is_warned in (("a\tb\n", False), ("a\tc\n", True)):
        file.write_text(text)
        again = run("train", f"--from={tmp_path}/run", f"run_dir={tmp_path}/again{is_warned}")
        warning = b"the data has changed since that run (model.lexicon)"
        assert (warning in again.stderr) == is_warned, again.stderr.decode()


def test_a_fingerprint_is_of_names_shapes_and_values_alone():
    weights = {"a": torch.arange(6.0), "b": torch.tensor(1, dtype=torch.bfloat16)}
    usual = weights_hash(weights)
    assert weights_hash(dict(reversed(weights.items()))) == usual
    assert weights_hash({**weights, "a": weights["a"].reshape(2, 3)}) != usual
    assert weights_hash({**weights, "a": weights["a"] + 1e-6}) != usual
    assert weights_hash({"c": weights["a"], "b": weights["b"]}) != usual


def test_a_run_names_the_commit_and_the_threads(first):
    record = json.loads((first[0] / "run.json").read_text())
    assert record["threads"] == 1
    assert record["data"].keys() == {"train", "validation", "test"}
    results = json.loads((first[0] / "results.json").read_text())
    assert results["data"].keys() == {"train", "validation"}  # runs with other tests are comparable
    assert results["pairs_in_training"].keys() == {"validation", "test"}
    if (ROOT / ".git").exists():
        assert re.fullmatch(r"[0-9a-f]{40}\+?", record["commit"])


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--from", "nowhere"], "--from nowhere: cannot be read (No such file or directory)"),
        (["--from", "list.yaml"], "--from list.yaml: not the config.yaml of a run"),
        (["--from", "RUN", "decoder=luong"], "decoder=luong: --from accepts single keys only"),
        (["--from", "RUN", "sed=1"], "did you mean seed?"),
        (
            ["--from", "RUN", "-m", "seed=1,2"],
            "--from: repeats a single run and cannot be combined with -m",
        ),
        (["--from", "RUN", "seed=1,2"], "has several values"),
    ],
)
def test_what_cannot_be_trained_again_is_reported(first, typed, said, tmp_path):
    (tmp_path / "list.yaml").write_text("- 1\n")
    words = [str(first[0]) if word == "RUN" else word for word in typed]
    failed(run("train", *words, cwd=tmp_path), said)
    failed(run("translate", "model=x", "--from", str(first[0])), "not supported by nmt.translate")
    failed(run("classify", "--from", str(first[0])), "nmt.classify did not train this run")


def test_no_class_of_a_strangers_file_is_made(first, tmp_path):
    text = (first[0] / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(
        text.replace("nmt.model.decoder.bahdanau.Bahdanau", "os.system")
    )
    failed(run("train", "--from", tmp_path / "config.yaml"), "not a class of nmt.model.decoder")


def test_a_repetition_warns_of_changed_data_and_of_settings_changed_on_resume(first, tmp_path):
    folder = tmp_path / "first"
    shutil.copytree(first[0], folder)
    unchanged = run("train", f"--from={folder}", "trainer.max_updates=1", f"run_dir={tmp_path}/a")
    assert "--from" not in unchanged.stderr.decode()
    record = json.loads((folder / "run.json").read_text())
    record["data"] |= {"train": "0" * 16, "test": "0" * 16}
    stopped = ["train", f"resume={folder}", "trainer.stop_after=0"]
    record["commands"] += [stopped, ["train", f"resume={folder}", "trainer.max_epochs=3"]]
    (folder / "run.json").write_text(json.dumps(record))
    output = run(
        "train", f"--from={folder}", "trainer.max_updates=1", f"run_dir={tmp_path}/b"
    ).stderr.decode()
    assert f"--from {folder}: the data has changed since that run (train, test)" in output
    assert "that run was resumed with other settings (trainer.max_epochs=3)" in output


def test_a_short_trial_is_not_tested_unless_asked(first, tmp_path):
    trial = [f"--from={first[0]}", "trainer.max_updates=1"]
    output = run("train", *trial, f"run_dir={tmp_path}/a").stderr.decode()
    assert "final_test=true also tests it" in output
    results = json.loads((tmp_path / "a/results.json").read_text())
    assert results["part"] == "validation"
    assert results["scores"]["exact"]["score"] == results["validation"]["exact"]
    assert not (tmp_path / "a/test.txt").exists()
    more = run("train", f"resume={tmp_path}/a", "trainer.max_epochs=9").stderr.decode()
    assert "To continue the training, raise trainer.max_updates" in more
    run("train", *trial, "final_test=true", f"run_dir={tmp_path}/b")
    assert len((tmp_path / "b/test.txt").read_text().splitlines()) == 5
    tested = [*run("train", f"resume={tmp_path}/a", "final_test=true").stderr.decode().splitlines()]
    assert any("test exact" in line for line in tested), tested
    results = json.loads((tmp_path / "a/results.json").read_text())
    assert results["part"] == "test"
    assert (tmp_path / "a/test.txt").read_text() == (tmp_path / "b/test.txt").read_text()
    assert run("report", tmp_path / "a", tmp_path / "b", f"output={tmp_path}/out").returncode == 0


def test_threads_are_set_in_every_command(first):
    before = torch.get_num_threads()
    try:
        assert run("translate", f"model={first[0]}", "threads=2", stdin="a b").returncode == 0
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    for command in ("train", "evaluate", "report", "serve"):
        failed(run(command, "threads=0"), "threads=0: must be a whole number")


def test_a_choice_of_another_group_is_named():
    with pytest.raises(Exception, match="did you mean window=local_m"):
        configure("train", ["attention=local_m"])


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [
        ("cell", "lstm", "encoder.cell"),
        ("cell", "null", "encoder.cell"),
        ("sizes.encoder", "6", "encoder.hidden_size"),
        ("sizes.vocabulary", "60", "tokenizer.vocabulary_size"),
        ("time_budget", "1m", "trainer.time_budget"),
    ],
)
def test_keys_to_which_other_keys_refer_are_refused(first, key, value, other):
    """config.yaml has values instead of references, so that these keys would change nothing."""
    with pytest.raises(
        ConfigErrors, match=f"{key}={value}: has no effect with --from; set {other}"
    ):
        configure("train", [f"{key}={value}"], str(first[0]))


def test_a_repetition_starts_and_resumes_with_the_same_command(first, tmp_path):
    command = [f"run_dir={tmp_path}/run", "resume=auto"]
    assert configure("train", command, str(first[0])).resume is None
    shutil.copytree(first[0], tmp_path / "run")
    assert configure("train", command, str(first[0])).resume == f"{tmp_path}/run"
    with pytest.raises(ConfigErrors, match="resume=other: cannot be combined with --from"):
        configure("train", ["resume=other"], str(first[0]))


def test_help_does_not_show_the_settings_of_an_earlier_run(small_run):
    for flags in (["--cfg", "job"], ["--help"]):
        failed(run("train", "--from", str(small_run), *flags), "--from: cannot be combined")
    failed(run("report", f"folders=[{small_run}]", str(small_run)), "folders: given twice")
