"""Trackers receive all figures, and a resumed run continues under its name."""

import itertools
import json
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest
from builders import resumed
from commands import failed, run, run_alone

from nmt.metric import Metric
from nmt.training.callback import Update
from nmt.training.tracker import MLflow, TensorBoard, Tracking, Wandb

TINY = [
    "experiment=reverse", "data.train=60", "data.validation=3", "data.test=3", "trainer.max_epochs=2", "sizes.encoder=8",
    "sizes.decoder=16", "sizes.readout=8", "model.embedding_size=8", "search=greedy", "trainer.log_every=1",
]  # fmt: skip


def trained(folder, *overrides, env=None):
    done = run("train", *TINY, *overrides, f"run_dir={folder}", env=env)
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("watched") / "run")


def test_tensorboard_has_what_its_users_expect(watched):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = watched
    result = EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0}).Reload()
    tags = result.Tags()
    assert {
        "train/loss",
        "train/gradient_norm",
        "validation/loss",
        "validation/exact",
        "final/exact",
    } <= set(tags["scalars"])
    assert len(result.Scalars("validation/loss")) == 2
    assert [event.step for event in result.Images("validation/attention")] == found_steps(folder)
    assert {"config/text_summary", "validation/samples/text_summary"} <= set(tags["tensors"])
    sample = (
        result.Tensors("validation/samples/text_summary")[0].tensor_proto.string_val[0].decode()
    )
    assert sample.startswith("| source | reference | translation |")
    assert "_hparams_/session_start_info" in result.SummaryMetadata(
        "_hparams_/session_start_info"
    ).plugin_data.plugin_name or any("hparams" in tag for tag in result.summary_metadata)


def found_steps(folder):
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["update"] for line in lines if line["kind"] == "validation"]


def test_characters_that_no_font_has_cause_no_warnings(tmp_path):
    pytest.importorskip("tensorboard")
    for part, count in (("train", 60), ("val", 3)):
        for language, words in (("zh", "𗀀 𗀁 𗀂"), ("en", "we love it")):
            (tmp_path / f"{part}.{language}").write_text(f"{words}\n" * count)
    data = [
        "data=text",
        "data.source=zh",
        "data.target=en",
        f"data.train={tmp_path}/train",
        f"data.validation={tmp_path}/val",
    ]
    sizes = [key for key in TINY if key.startswith(("sizes", "model", "trainer"))]
    done = run(
        "train", "experiment=null", *data, *sizes, "sizes.vocabulary=30", f"run_dir={tmp_path}/run"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "Glyph" not in done.stderr.decode()


def test_being_watched_changes_nothing_that_is_learnt(watched, tmp_path, monkeypatch):
    from safetensors.torch import load_file

    from nmt.pipeline.assembly import run_parts

    monkeypatch.setattr(run_parts, "trackers_of", lambda config: [])
    alone = trained(tmp_path / "alone")
    one, other = (load_file(folder / "best.safetensors") for folder in (watched, alone))
    assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.exhaustive
def test_wandb_keeps_everything_offline(tmp_path):
    pytest.importorskip("wandb")
    folder = trained(tmp_path / "run", "tracker=wandb", env={"WANDB_SILENT": "true"})
    [file] = folder.glob("wandb/offline-run-*/*.wandb")
    with open(file, "rb") as opened:
        kept = opened.read()
    for name in (b"validation/exact", b"train/loss", b"final/exact"):
        assert name in kept
    assert (
        run(
            "train", f"resume={folder}", "trainer.max_epochs=3", env={"WANDB_SILENT": "true"}
        ).returncode
        == 0
    )
    resumed(folder, "tracker=tensorboard", "trainer.max_epochs=4")
    identity = json.loads((folder / "tracker.json").read_text())["wandb"]
    assert all(identity in path.name for path in folder.glob("wandb/offline-run-*"))


@pytest.mark.exhaustive
def test_mlflow_without_a_server(tmp_path):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    folder = trained(tmp_path / "run", "tracker=mlflow")
    client = MlflowClient((tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("nmt")
    [result] = client.search_runs([experiment.experiment_id])
    assert result.data.params["decoder.hidden_size"] == "16"
    assert "final/exact" in result.data.metrics
    assert len(client.get_metric_history(result.info.run_id, "validation/loss")) == 2
    assert run("train", f"resume={folder}", "trainer.max_epochs=3").returncode == 0
    assert len(client.get_metric_history(result.info.run_id, "validation/loss")) == 3


def test_names_that_mlflow_refuses_are_changed():
    logged = []
    tracker = MLflow()
    tracker._client = SimpleNamespace(log_metric=lambda run, name, *_, **__: logged.append(name))
    tracker._run = "1"
    tracker.figures({"validation/a,b@20:40/loss": 1.0, "train/loss": 2.0}, 3)
    assert logged == ["validation/a_b_20:40/loss", "train/loss"]


@pytest.mark.exhaustive
def test_trackio_keeps_figures_in_its_database(tmp_path):
    pytest.importorskip("trackio")
    typed = [*TINY, "tracker=trackio", f"run_dir={tmp_path}/run"]
    done = run_alone(
        "train", *typed, env={"TRACKIO_DIR": str(tmp_path / "db"), "PYTHONWARNINGS": "ignore"}
    )
    assert done.returncode == 0, done.stderr.decode()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "db").rglob("*.db*"))
    assert b"validation/exact" in kept


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_a_tracker_that_is_not_installed_is_refused_with_its_package(tmp_path, monkeypatch, name):
    """Before any data is read, by every command that trains."""
    from nmt.foundation import extras as extras

    monkeypatch.setattr(extras, "installed", lambda package: package != name)
    typed = [*TINY, f"tracker={name}", f"run_dir={tmp_path}/run"]
    text = tmp_path / "absent"
    for command, more in (
        ("train", []),
        ("train", ["-m", "seed=1,2"]),
        ("backtranslate", [f"synthetic.text={text}"]),
    ):
        message = failed(run(command, *typed, *more), f"pip install '.[{name}]'")
        assert str(text) not in message
        assert "data: " not in message
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_has_its_first_id_at_wandb_and_mlflow(tmp_path, monkeypatch):
    """Small substitutes of both packages record the ids that the trackers use."""
    used, running, created = [], [], iter(("mlflow-1", "mlflow-2"))
    started = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None, summary={})
    wandb = SimpleNamespace(
        init=lambda **given: used.append(given["id"]) or started, Settings=lambda **_: None
    )
    client = SimpleNamespace(
        get_experiment_by_name=lambda _: SimpleNamespace(experiment_id="0"),
        create_run=lambda *_, **__: SimpleNamespace(info=SimpleNamespace(run_id=next(created))),
        log_param=lambda *_: None,
        log_metric=lambda run, *_, **__: used.append(run),
        update_run=lambda run, status: running.append((run, status)),
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda _: client))
    for kind in (Wandb, MLflow):
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir(exist_ok=True)
            for _ in range(2):  # the second time, the run is resumed
                tracker = kind()
                tracker.open(tmp_path / folder, {"seed": 1}, None)
                tracker.figures({"train/loss": 1.0}, 1)
    first, second = used[0], used[2]
    assert used == [first] * 2 + [second] * 2 + ["mlflow-1"] * 2 + ["mlflow-2"] * 2
    assert first != second
    # MLflow shows a resumed run as running.
    assert running == [(f"mlflow-{n}", "RUNNING") for n in (1, 1, 2, 2)]
    assert json.loads((tmp_path / "a" / "tracker.json").read_text()) == {
        "wandb": first,
        "mlflow": "mlflow-1",
    }


def test_a_resumed_run_keeps_the_events_before_the_stop(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = trained(tmp_path / "run", "trainer.stop_after=1")
    done = run("train", f"resume={folder}", "trainer.stop_after=0")
    assert done.returncode == 0, done.stderr.decode()
    events = EventAccumulator(str(folder)).Reload().Scalars("validation/loss")
    assert [event.step for event in events] == found_steps(folder)
    assert len(events) == 2


def test_tensorboard_hides_updates_that_are_repeated_after_a_rollback(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.summary.writer import event_file_writer

    # The names of files have seconds, and TensorBoard reads the files of one second in any order.
    seconds = itertools.count(10**9)
    clock = SimpleNamespace(time=seconds.__next__)
    monkeypatch.setattr(event_file_writer, "time", clock)
    callback = Tracking([TensorBoard()], tmp_path, {}, None)
    for update, loss in ((1, 5.0), (2, 4.0), (3, 3.0), (0, 1), (2, 2.0), (3, 1.0)):
        if not update:
            callback.on_rollback(1)
        else:
            callback.on_update(Update(update, 3, 0.0, loss, 0.1, 1.0, 1.0))
    callback.on_end(None)
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("train/loss")
    assert [(event.step, event.value) for event in events] == [(1, 5.0), (2, 2.0), (3, 1.0)]


def test_figures_need_no_score_of_the_metric(tmp_path, monkeypatch):
    """A metric of a plugin may return its own score alone."""
    score = Metric.score

    def alone(self, *arguments, **options):
        return {self.name: score(self, *arguments, **options)[self.name]}

    monkeypatch.setattr(Metric, "score", alone)
    assert (trained(tmp_path / "run") / "attention.png").exists()


def test_a_tracker_that_fails_does_not_end_the_training(tmp_path, caplog):
    class Fails(TensorBoard):
        def figures(self, figures, update):
            raise ConnectionError("no server")

    class Keeps(TensorBoard):
        recorded: ClassVar[list[int]] = []

        def figures(self, figures, update):
            self.recorded.append(update)

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    tracking = Tracking([Fails(), Keeps()], tmp_path, {}, 1)
    for update in (1, 2):
        tracking.on_update(Update(update, 3, 0.0, 1.0, 0.1, 1.0, 1.0))
    tracking.on_end(None)
    assert Keeps.recorded == [1, 2]
    assert caplog.messages == ["tracker=tensorboard: stops recording (no server)"]
