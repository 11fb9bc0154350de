"""Sweeps: what is run, what is not run again, and that a sweep that was killed ends like one that was not."""

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from builders import compose, trained
from commands import ROOT, failed, run
from safetensors.torch import load_file

from nmt.configuration.configure import configure
from nmt.configuration.overrides import parse, values_of
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import ConfigErrors
from nmt.foundation.processes import is_running
from nmt.pipeline import launchers, training_job
from nmt.pipeline.one_after_another import first_valid
from nmt.pipeline.run_identity import RunIdentities
from nmt.pipeline.training_job import TrainingJob
from nmt.storage.files import LOCK
from nmt.sweep import job
from nmt.sweep.halving import Halving
from nmt.sweep.names import name_of
from nmt.sweep.run_status import Run, RunState, find
from nmt.sweep.trials import Trials
from nmt.sweep.watch import SweepProgress, duration, overall, time_left

TINY = [
    "experiment=reverse", "data.train=60", "data.validation=10", "data.test=10", "trainer.max_epochs=3", "sizes.encoder=8",
    "sizes.decoder=16", "sizes.readout=8", "model.embedding_size=8", "search=greedy", "trainer.save_every=0",
]  # fmt: skip


def swept(folder, *overrides):
    return run("train", "-m", *TINY, *overrides, f"run_dir={folder}")


def results(folder):
    """Scores of all runs, to the last digit."""
    result = {
        file.parent.name: json.loads(file.read_text()) for file in folder.glob("*/results.json")
    }
    return {
        name: (r["scores"], r["validation"], r["best_update"], r["updates"])
        for name, r in result.items()
    }


def alone(folder, *overrides):
    """Scores of a run outside any sweep."""
    trained(folder, *TINY, *overrides)
    return results(folder.parent)[folder.name]


def attempts(folder):
    return {
        each.name: each.record()["attempts"] for each in find(folder) if "attempts" in each.record()
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A sweep of three runs, one of which cannot succeed."""
    folder = tmp_path_factory.mktemp("sweep") / "plain"
    result = swept(
        folder, "decoder=luong,fixed", "attention=dot", "seed=1,2", "tokenizer.vocabulary_size=30"
    )
    return folder, result


def test_folders_are_named_by_what_differs_and_failures_are_reported(plain):
    folder, result = plain
    message = failed(
        result, "decoder=fixed has no attention", "run the same command again to repeat failed runs"
    )
    assert "2 of 4 runs finished, 2 failed" in message
    assert {file.parent.name for file in folder.glob("*/results.json")} == {
        "luong-seed1",
        "luong-seed2",
    }
    assert {each.name: each.state for each in find(folder)} == {
        "luong-seed1": RunState.FINISHED, "luong-seed2": RunState.FINISHED, "fixed-seed1": RunState.FAILED, "fixed-seed2": RunState.FAILED,
    }  # fmt: skip


def test_a_tokenizer_is_trained_once(plain):
    folder, _ = plain
    assert len([*(folder / ".sweep/tokenizers").glob("*.model")]) == 1
    assert (
        "reusing the SentencePiece model of an earlier run"
        in (folder / "luong-seed2/train.log").read_text()
    )


@pytest.mark.exhaustive
def test_the_same_command_again_adds_what_is_new_and_touches_nothing_else(plain):
    folder, _ = plain
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*/*.safetensors")}
    more = swept(
        folder, "decoder=luong", "attention=dot", "seed=1,2,3", "tokenizer.vocabulary_size=30"
    )
    assert more.returncode == 0, more.stderr.decode()
    assert set(results(folder)) == {"luong-seed1", "luong-seed2", "seed3"}
    assert {file: file.stat().st_mtime_ns for file in before} == before
    other = swept(
        folder,
        "decoder=luong",
        "attention=dot",
        "seed=1",
        "tokenizer.vocabulary_size=30",
        "data.train=61",
    )
    assert other.returncode == 0, other.stderr.decode()
    assert len(results(folder)) == 4, "other data is another run"


def test_a_dry_run_lists_and_makes_nothing(plain, tmp_path):
    folder, _ = plain
    typed = [
        "decoder=luong",
        "attention=dot",
        "seed=1,7",
        "tokenizer.vocabulary_size=30",
        "--dry-run",
    ]
    listed = swept(folder, *typed).stdout.decode()
    assert "1 of 2 runs finished, 1 waiting, about" in listed
    assert "luong-seed1  finished: validation exact match" in listed
    assert "seed7        waiting" in listed
    assert (
        "unknown until the first run is finished" in swept(tmp_path / "new", *typed).stdout.decode()
    )
    assert not (tmp_path / "new").exists()


def test_without_a_folder_the_same_sweep_goes_to_the_same_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    work = [TrainingJob("train", [*TINY, f"seed={seeds}"], []) for seeds in ("1,2", "1,2,3")]
    assert work[0].folder == work[1].folder
    assert str(work[0].folder).startswith("runs/grid-reverse-")
    other = TrainingJob("train", [*TINY[:1], "data.train=70", *TINY[2:], "seed=1,2"], [])
    assert other.folder != work[0].folder


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (
            [("decoder", "bahdanau"), ("attention", "concat"), ("seed", "1")],
            "bahdanau-concat-seed1",
        ),
        ([("optimizer.lr", "0.001"), ("tokenizer.joint", "true")], "lr0.001-joint-true"),
        (
            [("encoder.hidden_size", "8"), ("decoder.hidden_size", "9")],
            "encoder.hidden_size8-decoder.hidden_size9",
        ),
        ([("optimizer.lr", "1e+20")], "lr1e+20"),
        ([("data.train", "/a/b c"), ("init", None)], "train--a-b-c"),
        ([], "run"),
    ],
)
def test_names(parts, name):
    assert name_of({key: value for key, value in parts if value is not None}) == name


def test_long_names_stay_different():
    names = {
        name_of({**{f"key{i}": "x" * 20 for i in range(10)}, "seed": str(seed)}) for seed in (1, 2)
    }
    assert len(names) == 2
    assert max(map(len, names)) <= 120


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["hydra/launcher=workres"], "launcher not found (available: "),
        (
            ["hydra/launcher=workers", "hydra.launcher.n_job=2"],
            "key not found; did you mean n_jobs?",
        ),
        (
            ["hydra/launcher=workers", "hydra.launcher.n_jobs=two"],
            "hydra.launcher.n_jobs=two: Value 'two' of type 'str'",
        ),
        (["hydra.launcher.n_jobs=2"], "hydra.launcher.n_jobs: key not found"),
        (["hydra/launcher=workers", "hydra.launcher.n_jobs=0"], "hydra.launcher.n_jobs=0: must"),
        (["hydra/launcher=slurm"], "Slurm not found on this machine"),
        (["hydra.launcher=workers"], "a sweep accepts hydra/launcher=NAME"),
        (["hydra.sweep.dir=runs/mine"], "Set the folder by run_dir=DIR"),
        (["hydra/sweeper=optuna"], "the type of sweep by sweep=grid"),
        (
            ["hydra.verbose=true"],
            "a sweep accepts hydra/launcher=NAME and hydra.launcher.KEY=VALUE",
        ),
        (["optimizer.lr=interval(0.1,0.2)"], "interval(…) is supported by sweep=optuna only"),
        (["decoder=lung"], "did you mean luong?"),
        (["sweep=halving", "sweep.factor=1", "seed=1,2"], "must be at least 2"),
        (
            ["sweep=halving", "sweep.epochs=3", "seed=1,2"],
            "must be less than 3, the number of epochs of the shortest run",
        ),
        (["sweep=optuna"], "the search space is empty"),
        (["sweep=gird"], "did you mean grid?"),
        (["seed=1,2", "resume=auto"], "a sweep resumes its own runs"),
        (["seed=1,2", "sweep=grid,halving"], "a sweep has a single value of this key"),
        (["sweep=optuna", "optimizer.lr=interval(0.1,0.001)"], "optimizer.lr: not a search space"),
        (["sweep.grids=['attention=nothing']"], "attention=nothing: unknown choice"),
        (["sweep.grids=['seed=range(3,1)']"], "seed: has no values: seed=range(3,1)"),
        (["sweep.grids=['optimizer.lr=interval(0.1,1)']"], "is supported by sweep=optuna only"),
        (["decoder=glob(foo*)"], "decoder: has no values"),
        (["trainer.max_epochs=range(1,3,0)"], "trainer.max_epochs: has no values"),
        (["+hydra.launcher.n_jobs=2", "seed=1,2"], "not supported; a sweep accepts"),
    ],
)
def test_what_is_wrong_with_a_sweep_is_reported_before_anything_runs(tmp_path, typed, said):
    result = swept(tmp_path / "sweep", *typed)
    assert result.returncode in (1, 2)
    assert said in result.stderr.decode(), result.stderr.decode()
    assert "Traceback" not in result.stderr.decode()
    assert not [*tmp_path.glob("sweep/*/run.json")]


def test_a_folder_with_another_run_is_not_taken(tmp_path):
    (tmp_path / "seed1").mkdir()
    (tmp_path / "seed1/run.json").write_text("{}")
    job = TrainingJob("train", [*TINY, "seed=1,2", f"run_dir={tmp_path}"], [])
    first, second = (planned.folder.name for planned in job.plan(job.grid([])))
    assert first.startswith("seed1-")
    assert second == "seed2"


def test_a_shuffled_list_keeps_each_value_with_its_text():
    for _ in range(20):
        [override] = parse(["trainer.time_budget=shuffle(5m,3,4.5)"])[0]
        assert sorted(values_of(override)) == ["3", "4.5", "5m"]


def test_keys_of_a_replaced_choice_of_a_grid_are_replaced_with_it():
    job = TrainingJob("train", [*TINY, "window=global"], [])
    grid = "window=local window.distance=5 seed=1"
    [overrides] = job.grid([grid])
    assert "seed=1" in overrides
    assert [text for text in overrides if text.startswith("window")] == ["window=global"]


def test_the_grids_may_choose_the_metric(tmp_path):
    typed = [*TINY, "sweep.grids=['metric=ter seed=1,2']", f"run_dir={tmp_path}"]
    job = TrainingJob("train", typed, [])
    assert job.metric == "ter"
    assert not job.greater


def test_scores_are_compared_in_the_direction_of_the_metric():
    assert TrainingJob("train", ["data=reverse"], []).greater
    assert not TrainingJob("train", ["data=reverse", "metric=ter"], []).greater


def test_a_wrong_value_of_the_data_fails_alone(tmp_path):
    listed = run("train", "-m", "--dry-run", *TINY, "data.train=60,6O", f"run_dir={tmp_path}/s")
    assert listed.returncode == 0, listed.stderr
    assert b"2 runs" in listed.stdout
    assert b"waiting: data.train=6O: " in listed.stdout


def test_the_command_line_replaces_a_key_of_the_grids_with_a_warning(tmp_path, caplog):
    typed = [*TINY, "sweep=grid", f"run_dir={tmp_path}/s", "seed=5"]
    job = TrainingJob("train", typed, [])
    grid = "seed=1,2 data.symbols=5,6 +note='a b'"
    combinations = job.grid([grid])
    assert [text[:2] for text in combinations] == [
        [f"data.symbols={n}", "+note='a b'"] for n in (5, 6)
    ]
    assert all("seed=5" in combination for combination in combinations)
    assert "the command line replaces seed=1,2" in caplog.text


def test_what_belongs_to_sweeps_is_refused_elsewhere():
    failed(run("train", "--dry-run", *TINY), "add -m")
    failed(run("train", *TINY, "sweep=seeds"), "this sweep has several runs; add -m")
    failed(run("evaluate", "-m", "model=x", "source=a", "reference=b", "hydra/launcher=workers"), "only sweeps of training commands (such as nmt.train -m) support this")  # fmt: skip


@pytest.mark.exhaustive
def test_other_commands_do_one_after_the_other(small_run, tmp_path):
    (tmp_path / "a").write_text("a b c\n")
    done = run(
        "translate",
        "-m",
        f"model={small_run}",
        f"input={tmp_path}/a",
        f"output={tmp_path}/one,{tmp_path}/two",
    )
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "one").read_text() == (tmp_path / "two").read_text()


def test_two_sweeps_in_one_folder_at_a_time_are_refused(tmp_path):
    from nmt.storage.lock import Lock

    (tmp_path / "sweep/.sweep").mkdir(parents=True)
    with Lock(tmp_path / "sweep/.sweep/lock", "x"):
        failed(swept(tmp_path / "sweep", "seed=1,2"), f"process {os.getpid()}", "is writing to it")


def test_a_damaged_record_names_its_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/sweep.json").write_text("{")
    with pytest.raises(UserError, match=r"a/sweep.json: cannot be read"):
        find(tmp_path)


@pytest.mark.exhaustive
def test_what_an_interruption_has_left_is_resumed(tmp_path):
    truth = {
        f"seed{seed}": alone(tmp_path / "whole" / f"seed{seed}", f"seed={seed}") for seed in (1, 2)
    }
    assert (
        swept(tmp_path / "parts", "seed=1,2", "trainer.stop_after=1").returncode == 1
    )  # as if each had been stopped
    assert [each.state for each in find(tmp_path / "parts")] == [RunState.STOPPED] * 2
    assert swept(tmp_path / "parts", "seed=1,2").returncode == 0
    assert results(tmp_path / "parts") == truth
    for name in truth:
        one, other = (
            load_file(tmp_path / way / name / "best.safetensors") for way in ("whole", "parts")
        )
        assert all((one[key] == other[key]).all() for key in one)


@pytest.fixture
def start(tmp_path):
    """Starts a sweep in processes of its own, which are all gone when the test ends: a pool that is killed while it starts its
    workers leaves one that waits for ever. Its output is in sweep.log."""
    started = []

    def begin(folder, *overrides):
        command = [sys.executable, "-m", "nmt.train", "-m", *TINY, *overrides, f"run_dir={folder}"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(tmp_path / "sweep.log", "wb") as log:
            started.append(
                subprocess.Popen(
                    command, stderr=log, stdout=log, env=environment, start_new_session=True
                )
            )
        return started[-1]

    yield begin
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.exhaustive
def test_a_sweep_killed_again_and_again_ends_like_runs_that_were_not(tmp_path, fork):
    """By SIGKILL, at random times; its runs end too, and none is trained to its end twice."""
    rng = random.Random(int(os.environ.get("NMT_SWEEP_SEED", "1")))
    folder = tmp_path / "killed"
    command = "train", "-m", *TINY, "decoder=luong,bahdanau", "attention=dot", "seed=1,2", f"run_dir={folder}"  # fmt: skip
    for _ in range(3):
        sweep = fork(*command)
        time.sleep(rng.uniform(0.5, 3.5))
        sweep.kill()
        sweep.wait()
    done = {
        name: (folder / name / "best.safetensors").stat().st_mtime_ns for name in results(folder)
    }
    status = fork(*command).wait(300)
    for _ in range(60):
        if status != os.EX_TEMPFAIL:
            break
        time.sleep(
            1
        )  # a run of the killed sweep has inherited its lock (only forks do) and ends soon
        status = fork(*command).wait(300)
    assert status == 0, (tmp_path / "fork.log").read_text()
    truth = {
        f"{decoder}-seed{seed}": alone(
            tmp_path / "whole" / f"{decoder}-seed{seed}", f"decoder={decoder}", "attention=dot", f"seed={seed}"
        )
        for decoder in ("luong", "bahdanau") for seed in (1, 2)
    }  # fmt: skip
    assert results(folder) == truth
    assert {name: (folder / name / "best.safetensors").stat().st_mtime_ns for name in done} == done


@pytest.mark.exhaustive
@pytest.mark.skipif(not launchers.is_installed("joblib"), reason="needs pip install '.[sweep]'")
def test_workers_that_were_killed_end_like_runs_that_were_not(tmp_path, start):
    """joblib, for real: the sweep is killed while both runs train."""
    typed = "seed=1,2", "hydra/launcher=workers", "hydra.launcher.n_jobs=2"
    folder = tmp_path / "killed"
    sweep, begun = start(folder, *typed), [folder / f"seed{k}/last.safetensors" for k in (1, 2)]
    while sweep.poll() is None and not all(file.exists() for file in begun):
        time.sleep(0.05)
    sweep.kill()
    sweep.wait()
    assert start(folder, *typed).wait() == 0, (tmp_path / "sweep.log").read_text()
    assert results(folder) == {
        f"seed{k}": alone(tmp_path / "whole" / f"seed{k}", f"seed={k}") for k in (1, 2)
    }


@pytest.mark.exhaustive
def test_a_run_stops_when_its_sweep_is_gone(tmp_path):
    guard = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    import socket

    child = subprocess.Popen(
        [sys.executable, "-m", "nmt.sweep.child", f"{guard.pid}@{socket.gethostname()}", "timeit", "-n1", "-r1", "__import__('time').sleep(60)"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    time.sleep(1)
    assert child.poll() is None
    guard.kill()
    guard.wait()
    assert child.wait(10) == -signal.SIGTERM
    assert not is_running(guard.pid)


@pytest.mark.exhaustive
def test_halving_promotes_the_best_and_resumes_them(tmp_path):
    """The winner is, bit for bit, the run that was trained without any halving."""
    rates = "optimizer.lr=0.00001,0.003,0.00002,0.00003"
    halved = swept(tmp_path / "halved", rates, "metric=loss", "sweep=halving")
    assert halved.returncode == 0, halved.stderr.decode()
    states = {each.name: each.state for each in find(tmp_path / "halved")}
    assert states == {
        "lr0.003": RunState.FINISHED, "lr1e-05": RunState.HALTED, "lr2e-05": RunState.HALTED, "lr3e-05": RunState.HALTED,
    }  # fmt: skip
    assert attempts(tmp_path / "halved") == {"lr0.003": 2, "lr1e-05": 1, "lr2e-05": 1, "lr3e-05": 1}
    alone(tmp_path / "plain" / "run", "optimizer.lr=0.003", "metric=loss")
    one, other = (
        load_file(tmp_path / "plain/run/best.safetensors"),
        load_file(tmp_path / "halved/lr0.003/best.safetensors"),
    )
    assert all((one[key] == other[key]).all() for key in one)
    again = swept(tmp_path / "halved", rates, "metric=loss", "sweep=halving")
    assert again.returncode == 0
    assert attempts(tmp_path / "halved")["lr0.003"] == 2, "nothing is done twice"
    listed = swept(tmp_path / "halved", rates, "metric=loss", "sweep=halving", "--dry-run")
    assert b"lr1e-05  eliminated: validation loss" in listed.stdout


def test_halving_waits_for_an_interrupted_run(tmp_path, caplog):
    """A run without a score because of a signal is not eliminated; a failed run is."""
    runs = [Run(tmp_path / name, name, "train", ()) for name in ("first", "stopped", "failed")]
    validation = {"kind": "validation", "epoch": 1, "update": 9, "loss": 2.0}

    def train(remaining, epochs=0):
        for each in remaining:
            failure = "out of memory" if each.name == "failed" else None
            each.note(failure=failure, attempts=1)
            if each.name == "first":
                (each.folder / "metrics.jsonl").write_text(json.dumps(validation) + "\n")

    job = SimpleNamespace(
        grid=lambda *_: [], plan=lambda _: runs, horizon=lambda _: 9, train=train, greater=False,
        score=lambda each, epochs: 2.0 if each.reached(epochs) else None,
    )  # fmt: skip
    Halving()(job)
    assert "stopped did not reach epoch 1" in caplog.text
    assert [each.state for each in runs] == [RunState.WAITING, RunState.WAITING, RunState.FAILED]
    (runs[1].folder / "metrics.jsonl").write_text(json.dumps({**validation, "loss": 3.0}) + "\n")
    Halving()(job)
    assert [each.state for each in runs[1:]] == [RunState.HALTED, RunState.FAILED]


@pytest.mark.exhaustive
def test_halving_names_equal_scores(tmp_path):
    """Rates of 0 change nothing, so all runs have the same loss."""
    rates = "optimizer.lr=1e-30,2e-30,3e-30"
    halved = swept(tmp_path / "equal", rates, "metric=loss", "sweep=halving").stderr.decode()
    assert "lr1e-30 and lr2e-30 have the same validation score after epoch 1" in halved


@pytest.mark.exhaustive
@pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("optuna"),
    reason="needs pip install '.[sweep]'",
)
def test_a_search_by_optuna_is_kept_and_continues(tmp_path):
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    space = ["sweep=optuna", "optimizer.lr=tag(log,interval(0.0001,0.01))", "encoder.num_layers=range(1,3)", "attention=choice(dot,general)"]  # fmt: skip
    tiny = [*space, "metric=loss", "decoder=luong", "decoder.bridge=tanh", "trainer.max_epochs=1"]
    others = [text for text in TINY if not text.startswith("trainer.max_epochs")]
    for trials in (1, 3):
        done = run(
            "train", "-m", *others, *tiny, f"sweep.trials={trials}", f"run_dir={tmp_path}/study"
        )
        assert done.returncode == 0, done.stderr.decode()
    study = optuna.load_study(
        study_name=None,  # the only one
        storage=JournalStorage(JournalFileBackend(f"{tmp_path}/study/optuna.journal")),
    )
    assert len(study.trials) == 3
    # A continued study chooses the same trials as an uninterrupted one.
    assert len({trial.params["optimizer.lr"] for trial in study.trials}) == 3
    at_once = f"run_dir={tmp_path}/once"
    assert run("train", "-m", *others, *tiny, "sweep.trials=3", at_once).returncode == 0
    names = [{file.parent.name for file in tmp_path.glob(f"{name}/*/results.json")} for name in ("study", "once")]  # fmt: skip
    assert names[0] == names[1]
    assert study.direction == optuna.study.StudyDirection.MINIMIZE
    validation = sorted(
        json.loads(file.read_text())["validation"]["loss"]
        for file in tmp_path.glob("study/*/results.json")
    )
    assert sorted({trial.value for trial in study.trials}) == pytest.approx(
        validation
    )  # the same settings are one run
    assert all(0.0001 <= trial.params["optimizer.lr"] <= 0.01 for trial in study.trials)
    assert b"best of 3 trials" in done.stderr
    # Other values begin another study, without a fault; a moved sweep is continued.
    (tmp_path / "study").rename(tmp_path / "moved")
    space[-1] = "attention=choice(dot,general,concat)"
    tiny = [*space, "metric=loss", "decoder=luong", "decoder.bridge=tanh", "trainer.max_epochs=1"]
    again = run("train", "-m", *others, *tiny, "sweep.trials=1", f"run_dir={tmp_path}/moved")
    assert again.returncode == 0, again.stderr.decode()
    storage = JournalStorage(JournalFileBackend(f"{tmp_path}/moved/optuna.journal"))
    names = [study.study_name for study in optuna.get_all_study_summaries(storage)]
    studies = [optuna.load_study(study_name=name, storage=storage) for name in names]
    assert sorted(len(study.trials) for study in studies) == [1, 3]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "needs"), [("slurm_here", "submitit"), ("ray_here", "ray")])
def test_launchers(tmp_path, name, needs):
    """submitit's local executor, a local Ray: each for real. For joblib, see above."""
    if not launchers.is_installed(needs):
        pytest.skip(f"hydra-{needs}-launcher is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "nmt.train", "-m", *TINY, "seed=1", f"hydra/launcher={name}", f"run_dir={tmp_path}/sweep"],
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert len(results(tmp_path / "sweep")) == 1


def test_a_run_on_another_machine_counts_as_running(tmp_path):
    run_ = Run(tmp_path, "a", "train", ())
    assert run_.holder() is None
    for host, process, holder in (
        ("elsewhere", os.getpid(), 0),
        (socket.gethostname(), os.getpid(), os.getpid()),
        (socket.gethostname(), 2**22, None),
    ):
        fields = {"process": process, "host": host, "since": "today"}
        (tmp_path / LOCK).write_text(json.dumps(fields))
        assert run_.holder() == holder


def test_errors_that_all_combinations_share_are_reported_alone():
    shared, first, second = "trainer.clip_norm=-1", "seed=-1", "decoder.hidden_size=0"
    with pytest.raises(ConfigErrors) as caught:
        first_valid("train", [[shared, first], [shared, second]])
    assert [error.key for error in caught.value.faults] == ["trainer.clip_norm"]
    with pytest.raises(ConfigErrors) as caught:
        first_valid("train", [[first], [second]])
    assert {error.key for error in caught.value.faults} >= {"seed", "decoder.hidden_size"}


def test_workers_share_threads_and_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(job, "available_cores", lambda: 8)
    assert job.threads_of({"n_jobs": 2}) == 4
    assert job.threads_of({"n_jobs": -1}) == 1
    assert job.threads_of({"cpus_per_task": 3}) == 3
    assert job.threads_of({"ray": {"remote": {"num_cpus": 2}}}) == 2
    assert job.threads_of({}) is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    with (
        job.run_environment({"n_jobs": 3}, tmp_path) as first,
        job.run_environment({"n_jobs": 3}, tmp_path) as second,
    ):
        assert [first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]] == ["3", "5"]
        assert first["OMP_NUM_THREADS"] == "2"
        with job.run_environment({"n_jobs": 3}, tmp_path) as third:
            assert third["CUDA_VISIBLE_DEVICES"] == "3"
    with job.run_environment({}, tmp_path) as alone:
        assert alone["CUDA_VISIBLE_DEVICES"] == "3,5"


def test_gpus_are_those_of_the_variable_or_of_the_driver(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, ,-1,5")
    assert job.gpus() == ["3", "5"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert job.gpus() == ["0", "1"]


def test_a_launcher_that_is_not_installed_is_refused_with_its_package(monkeypatch):
    monkeypatch.setattr(launchers, "is_installed", lambda package: False)
    with pytest.raises(
        UserError, match=r"needs hydra-joblib-launcher; run pip install '.\[sweep\]'"
    ):
        launchers.check(["hydra/launcher=workers"], ["basic"])


def test_why_a_run_failed():
    assert (
        job.reason(1, "2026-11-22 15:48:00 INFO a\n2026-11-22 15:48:00 ERROR it is\n  - this")
        == "it is\n  - this"
    )
    assert job.reason(1, "error: file not found") == "file not found"
    assert job.reason(1, "a b ERROR first\na b INFO x\nerror: last\n  - this") == "last\n  - this"
    assert "SIGKILL; probably out of memory" in job.reason(-9, "")
    assert job.reason(-40, "") == "killed by signal 40"
    as_json = '{"time": "now", "level": "INFO", "message": "a"}\n{"time": "now", "level": "ERROR", "message": "it is\\n- this"}'
    assert job.reason(1, f"{as_json}\n") == "it is\n- this"
    assert job.reason(1, "Traceback\nKeyError: 1") == "exit status 1: KeyError: 1"


def test_how_far_a_sweep_is(tmp_path):
    runs = [Run(tmp_path / name, name, "train", ()) for name in "abc"]
    runs[0].note(seconds=100.0)
    (tmp_path / "a/results.json").write_text("{}")
    runs[1].note(failure="it did")
    states = {each.name: each.state for each in runs}
    assert overall(runs, states) == "1 of 3 runs finished, 1 failed, 1 waiting, about 2 min left"
    assert time_left(runs, states) == 100
    (tmp_path / "b").mkdir(exist_ok=True)
    record = {"kind": "train", "update": 30, "total": 40}
    (tmp_path / "b/metrics.jsonl").write_text(json.dumps(record) + "\n")
    for state in (RunState.RUNNING, RunState.STOPPED):
        states["b"] = state
        # c, and the rest of b
        assert time_left(runs, states) == pytest.approx(100 * (1 + 10 / 40))
    assert [duration(s) for s in (5, 99.4, 130, 7300)] == ["5 s", "99 s", "2 min", "2 h 2 min"]


def test_warnings_of_runs_are_shown_once(tmp_path, caplog):
    """A warning that several runs share is shown with the first of them; each other one is shown too."""
    caplog.set_level("INFO", "nmt")
    runs = [Run(tmp_path / name, name, "train", ()) for name in "abc"]
    shared = "2026-11-26 12:00:00 WARNING data: 60 of 500 test pairs are in the training text\n"
    texts = {"a": shared, "b": f"2026-11-26 12:00:00 INFO x\n{shared}", "c": "1 2 WARNING other\n"}
    progress = SweepProgress(runs, "bleu")
    for name, log in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text(log)
        (tmp_path / name / "results.json").write_text("{}")
    progress.close()
    warnings = [r.message for r in caplog.records if r.levelname == "WARNING"]
    assert [text.partition(" (")[0] for text in warnings] == [
        "a: data: 60 of 500 test pairs are in the training text",
        "c: other",
    ]


@pytest.mark.parametrize(
    "preset",
    [
        "seeds",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in (
                "attention",
                "bahdanau_luong",
                "bahdanau2015",
                "low_resource",
                "luong2015",
                "pictures",
            )
        ),
    ],
)
def test_every_run_of_a_preset_can_be_made(preset):
    of_recipe = {
        "pictures": ["experiment=read_digits"],
    }
    typed = [f"sweep={preset}", *of_recipe.get(preset, ["data=reverse"])]
    work = TrainingJob("train", typed, [])
    runs = work.plan(work.grid(work.sweeper.grids))
    assert (
        len(runs)
        == {
            "attention": 39,
            "bahdanau_luong": 3,
            "bahdanau2015": 15,
            "luong2015": 36,
            "low_resource": 24,
            "seeds": 3,
            "pictures": 18,
        }[preset]
    )
    different = [each for each in runs if not {"seed=2", "seed=3"} & {*each.overrides}]
    for planned in different:
        configure("train", planned.overrides)  # without errors
    assert compose(*typed)["sweep"]["grids"]


def keys_of(*overrides):
    job = TrainingJob("train", [*TINY[3:], *overrides], [])
    return {run.key for run in job.plan(job.grid([]))}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Text files in DIR/a and, with the same content, in DIR/b; the current folder is DIR."""
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        for part in ("train", "val", "test"):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{part}.en").write_text("a b\nb c\nc d\n" * 9)
            (tmp_path / folder / f"{part}.de").write_text("b a\nc b\nd c\n" * 9)
    return tmp_path


def parts(folder):
    names = (("train", "train"), ("validation", "val"), ("test", "test"))
    files = [f"data.{key}={folder}/{name}" for key, name in names]
    return ["data=text", "data.source=en", "data.target=de", *files, "seed=1,2"]


def test_the_content_of_files_makes_a_run_not_their_names(corpus):
    keys = keys_of(*parts("a"))
    assert len(keys) == 2
    assert keys_of(*parts(corpus / "a")) == keys
    assert keys_of(*parts("b")) == keys
    for part in ("train", "val", "test"):
        file = corpus / "b" / f"{part}.en"
        before = file.read_text()
        file.write_text(before.replace("a b", "b b"))
        assert not keys_of(*parts("b")) & keys, part
        file.write_text(before)


@pytest.mark.parametrize(
    "values", [("copied_pairs=0.5", "copied_pairs=0.25"), ("filters.max_length=9", "filters.max_length=8")]
)  # fmt: skip
def test_a_run_is_the_same_whatever_the_order_of_the_values(corpus, values):
    text = [*parts("a")[:-1], "store=disk"]
    runs = [keys_of(*text, one) for one in values]
    key, _, first = values[0].partition("=")
    second = values[1].partition("=")[2]
    together = keys_of(*text, f"{key}={first},{second}")
    assert together == runs[0] | runs[1] == keys_of(*text, f"{key}={second},{first}")
    assert len(together) == 2


@pytest.mark.exhaustive
def test_a_sweep_finds_choices_in_other_folders_when_it_trains_too(tmp_path):
    """--config-dir is passed on to the processes of the runs."""
    (tmp_path / "conf/optimizer").mkdir(parents=True)
    text = (ROOT / "conf/optimizer/adam.yaml").read_text()
    (tmp_path / "conf/optimizer/mine.yaml").write_text(text)
    result = swept(tmp_path / "out", "seed=1", "optimizer=mine", f"--config-dir={tmp_path}/conf")
    assert result.returncode == 0, result.stderr.decode()
    [one] = find(tmp_path / "out")
    assert one.state is RunState.FINISHED


def test_what_is_added_to_a_finished_run_in_vain_is_reported(plain):
    folder, _ = plain
    typed = ["decoder=luong", "attention=dot", "seed=1,2", "tokenizer.vocabulary_size=30"]
    result = swept(folder, *typed, "keep_validations=true", "trainer.keep=3")
    assert result.returncode == 0, result.stderr.decode()
    output = result.stderr.decode()
    assert "keep_validations=true: has no effect on the run luong-seed1" in output
    assert "trainer.keep=3: has no effect on the run luong-seed1" in output
    assert "remove its run folder to train the run again" in output
    assert "has no effect" not in swept(folder, *typed).stderr.decode()


def test_a_run_that_has_not_begun_follows_the_repeated_command(tmp_path):
    """The run has failed at its start, for example for lack of a GPU."""

    def planned(*typed):
        job = TrainingJob("train", [*TINY, "seed=1,2", *typed, f"run_dir={tmp_path}"], [])
        return job.plan(job.grid([]))

    for one in planned("device=cuda"):
        one.note(failure="device=cuda: not available")
    again = planned("device=cpu", "threads=1")
    assert [one.name for one in again] == ["seed1", "seed2"]
    for one in again:
        assert {"device=cpu", "threads=1"} <= {*one.overrides}
        assert "device=cuda" not in one.overrides


def test_runs_that_a_sweep_has_no_longer_are_not_left_to_do(tmp_path):
    job = TrainingJob("train", [*TINY, "seed=1,2", f"run_dir={tmp_path}"], [])
    for one in job.plan(job.grid([])):
        one.note()
    assert "2 waiting" in overall_of(tmp_path)
    other = TrainingJob("train", [*TINY, "seed=2,3", f"run_dir={tmp_path}"], [])
    planned = other.plan(other.grid([]))
    for one in planned:
        one.note()
    other.drop_all_but(planned)
    assert "2 waiting" in overall_of(tmp_path)
    assert {one.name for one in find(tmp_path) if not one.dropped} == {"seed2", "seed3"}
    again = TrainingJob("train", [*TINY, "seed=1,2", f"run_dir={tmp_path}"], [])
    again.drop_all_but(again.plan(again.grid([])))
    assert {one.name for one in find(tmp_path) if not one.dropped} == {"seed1", "seed2"}


def overall_of(folder):
    runs = [each for each in find(folder) if not each.dropped]
    return overall(runs, {each.name: each.state for each in runs})


@pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("optuna"),
    reason="needs pip install '.[sweep]'",
)
def test_values_of_a_search_by_optuna_are_what_was_typed():
    typed = ["a=auto,null", "b='x y,z',w", "c=[1,2],[3]", "d=choice(1,2.5,true)"]
    choices = [training_job.distribution(override).choices for override in parse(typed)[0]]
    assert choices == [("auto", None), ("'x y,z'", "w"), ("[1,2]", "[3]"), (1, 2.5, True)]
    # The overrides of a trial equal those of a grid.
    for text in (r"data.train=c\,d/train,data/train", "data.train=str(1,2)", 'a="x","y"'):
        [override] = parse([text])[0]
        assert list(training_job.distribution(override).choices) == values_of(override)


@pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("optuna"),
    reason="needs pip install '.[sweep]'",
)
def test_a_range_of_decimal_numbers_has_all_its_values():
    for start, step in itertools.product(range(10), (1, 2, 3)):
        for stop in range(start + 1, 11):
            text = f"a=range({start / 10},{stop / 10},step={step / 10})"
            [override] = parse([text])[0]
            space = training_job.distribution(override)
            assert round((space.high - space.low) / space.step) + 1 == len(values_of(override))


@pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("optuna"),
    reason="needs pip install '.[sweep]'",
)
def test_equal_trials_of_a_batch_are_one_run(tmp_path, monkeypatch):
    words = [
        *TINY,
        "sweep=optuna",
        "decoder=luong",
        "attention=choice(dot,dot)",
        f"run_dir={tmp_path}",
    ]
    sweep = training_job.TrainingJob("train", words, [])
    started = []
    monkeypatch.setattr(sweep, "train", started.append)
    monkeypatch.setattr(sweep, "score", lambda run: 0.5)
    monkeypatch.setattr(Run, "state", RunState.FINISHED)
    Trials(trials=2, parallel=2)(sweep)
    assert [len(runs) for runs in started] == [1]


@pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("optuna"),
    reason="needs pip install '.[sweep]'",
)
def test_failed_trials_are_repeated_by_the_next_command(tmp_path, monkeypatch):
    words = [*TINY, "sweep=optuna", "optimizer.lr=interval(0.001,0.01)", f"run_dir={tmp_path}"]
    trained = {}
    for state in (RunState.FAILED, RunState.FINISHED):
        sweep = training_job.TrainingJob("train", words, [])
        trained[state] = []
        monkeypatch.setattr(sweep, "train", trained[state].extend)
        monkeypatch.setattr(sweep, "score", lambda run: 0.5)
        monkeypatch.setattr(Run, "state", state)
        Trials(trials=3)(sweep)
    assert len(trained[RunState.FAILED]) == 3
    assert {one.key for one in trained[RunState.FINISHED]} == {
        one.key for one in trained[RunState.FAILED]
    }


@pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("optuna"),
    reason="needs pip install '.[sweep]'",
)
@pytest.mark.parametrize("scores", ["none,general", "general,none"])
def test_a_search_space_may_begin_with_an_invalid_combination(tmp_path, scores):
    """attention=none ignores the window."""
    words = ["decoder=luong", "window=local_p", f"attention={scores}"]
    others = [text for text in TINY if not text.startswith(("decoder", "attention"))]
    TrainingJob("train", [*others, *words, "sweep=optuna", f"run_dir={tmp_path}"], [])


def test_an_interrupted_attempt_counts_its_seconds(tmp_path, monkeypatch):
    def interrupted(process):
        process.kill()
        process.wait()
        time.sleep(0.2)
        raise KeyboardInterrupt

    monkeypatch.setattr("nmt.sweep.job._wait", interrupted)
    (tmp_path / "a").mkdir()
    run = Run(tmp_path / "a", "a", "train", ())
    for attempt in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            job.train(run, 0, "0@here", {}, tmp_path / "slots")
        assert run.record()["seconds"] >= 0.2 * attempt


@pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("optuna"),
    reason="needs pip install '.[sweep]'",
)
def test_a_study_does_not_depend_on_a_random_order_and_has_any_seed():
    shuffled = parse(["seed=shuffle(1,2,3,4)"])[0][0]
    assert len({repr(training_job.distribution(shuffled)) for _ in range(9)}) == 1
    assert Trials(seed=20261130)._sampler(0) is not None


def test_a_run_that_is_killed_after_its_training_has_a_score(tmp_path, monkeypatch):
    job = training_job.TrainingJob("train", [*TINY, "seed=1,2", f"run_dir={tmp_path}"], [])
    run = Run(tmp_path / "a", "a", "train", ())
    run.note(failure="killed by SIGKILL")
    entry = {"kind": "validation", "update": 5, "epoch": 1, job.metric: 0.5}
    (tmp_path / "a/metrics.jsonl").write_text(json.dumps(entry) + "\n")
    assert job.score(run) is None
    (tmp_path / "a/results.json").write_text("{}")
    assert job.score(run) == 0.5


def test_choices_are_no_paths(tmp_path, monkeypatch):
    """A file named as a choice does not change a run; the content of a file that a setting names does."""
    monkeypatch.chdir(tmp_path)
    tied = [*TINY, "model.tying=output"]
    lexicon = [*tied, "model.lexicon=words"]
    (tmp_path / "words").write_text("a\tb\n")

    def identities():
        return [RunIdentities("train").of(overrides)[0] for overrides in (tied, lexicon)]

    before = identities()
    (tmp_path / "output").write_text("of something else")
    assert identities() == before
    (tmp_path / "words").write_text("a\tc\n")
    after = identities()
    assert (after[0], after[1] != before[1]) == (before[0], True)


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is a function of Linux")
def test_a_process_whose_name_is_cut_within_a_character_is_running():
    code = "import ctypes; ctypes.CDLL(None).prctl(15, b'caf\\xc3'); print(flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.readline()
        assert is_running(process.pid)
        process.stdin.write(b"\n")


@pytest.mark.parametrize("text", ["文件", "é", "x"])
def test_names_of_runs_are_names_of_folders(tmp_path, text):
    names = {name_of({"data.train": text * 200, "seed": seed}) for seed in ("1", "2")}
    assert len(names) == 2
    for name in names:
        (tmp_path / name).mkdir()
