"""Trusted like a database: one writer, nothing lost, nothing stale, nothing believed."""

import json
import logging
import math
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from builders import batch, compose, network, trained
from commands import failed, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_trainer import Known, Store, fit

import nmt
from nmt.configuration.configure import configure
from nmt.data.sources.table import TableFiles
from nmt.foundation.errors import UserError
from nmt.foundation.terminal import set_up_logging
from nmt.pipeline.resumed_training import use_threads_of
from nmt.storage import checkpoint as ckpt
from nmt.storage.cache import cache_folder
from nmt.storage.files import WRITING
from nmt.storage.lock import Holder, Lock, LockHeld
from nmt.storage.metrics_file import read_metrics
from nmt.training import busy_cores
from nmt.training.callback import Callback, Update
from nmt.training.interruption import interruptible
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.run_directory import RunDirectory, claim, claim_fresh
from nmt.training.schedule import Constant
from nmt.training.state import TrainingState
from nmt.training.task.translation_task import TranslationTask
from nmt.training.trainer import Trainer
from nmt.training.training_loop import MAX_FAILURES

TINY = [
    "experiment=reverse", "data.train=60", "data.validation=10", "data.test=5", "trainer.max_epochs=2", "sizes.encoder=4",
    "sizes.decoder=8", "sizes.readout=6", "model.embedding_size=6", "batching.sentences=10",
]  # fmt: skip


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("durable") / "run", *TINY)


# One writer


def _hold(path, ready, stay):
    with Lock(Path(path), "output=x"):
        ready.set()
        stay.wait(30)


def test_a_lock_names_its_holder_and_dies_with_it(tmp_path):
    context = multiprocessing.get_context("fork")
    ready, stay = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(str(tmp_path / "lock"), ready, stay))
    holder.start()
    assert ready.wait(60)
    with pytest.raises(
        LockHeld, match=rf"output=x: process {holder.pid} on \S+ \(since .*is writing to it"
    ):
        Lock(tmp_path / "lock", "output=x")
    assert Holder.read(tmp_path / "lock").process == holder.pid
    holder.kill()
    holder.join()
    Lock(tmp_path / "lock", "output=x").release()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_has_one_writer(tmp_path, run_dir):
    lock = claim(tmp_path / "new")
    with pytest.raises(UserError, match=f"run_dir={tmp_path}/new: process {os.getpid()}"):
        claim(tmp_path / "new")
    lock.release()
    with pytest.raises(UserError, match="contains another run"):
        claim(run_dir)
    with Lock(run_dir / ".lock", "x"):
        failed(run("train", f"resume={run_dir}", "trainer.max_epochs=3"), "is writing to it")
    names = []
    for _ in range(3):
        folder, lock = claim_fresh(tmp_path / "runs" / "now")
        names.append(folder.name)
        lock.release()
    assert names == ["now", "now-2", "now-3"]


def test_an_output_has_one_writer(tmp_path, run_dir):
    with Lock(tmp_path / ".out.lock", "x"):
        failed(
            run("translate", f"model={run_dir}", f"output={tmp_path}/out", stdin="a\n"),
            "output=",
            "is writing to it",
        )


def test_a_dead_start_leaves_its_folder_free(tmp_path):
    """Files of a run that crashed before its first checkpoint are removed; files of others are not."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"commands": [], "versions": {}}))
    (folder / "config.yaml").write_text("seed: 1\n")
    (folder / f".{ckpt.LAST}.123-0.writing").write_bytes(b"half")
    assert run("train", *TINY, f"run_dir={folder}").returncode == 0
    assert not list(folder.glob(".*"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text("mine: true\n")
    failed(
        run("train", *TINY, f"run_dir={other}"),
        "contains files that do not belong to a run (config.yaml)",
    )
    assert (other / "config.yaml").read_text() == "mine: true\n"
    assert [path.name for path in other.iterdir()] == ["config.yaml"]


def test_the_record_of_averaged_weights_is_written_once(tmp_path):
    """If a run was killed between the record and the checkpoint, the resumed run writes it again."""
    entries = [
        {"kind": "train", "update": 12},
        {"kind": "validation", "update": 12},
        {"kind": "validation", "update": 12, "averaged": True},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    files = RunDirectory(path=tmp_path, meta={}, tensors={})
    files.on_rollback(12)
    assert read_metrics(tmp_path) == entries
    files.on_rollback(12, averaged=False)
    assert read_metrics(tmp_path) == entries[:2]


def test_a_run_that_fails_before_its_first_validation_leaves_its_folder_free(tmp_path):
    folder = tmp_path / "run"
    failed(
        run("train", *TINY, "optimizer=sgd", "optimizer.lr=1e30", f"run_dir={folder}"),
        "lower optimizer.lr",
    )
    assert not folder.exists()
    assert run("train", *TINY, f"run_dir={folder}").returncode == 0


# Numbers


def poison(model, at: int):
    """The gradient of update `at` (from 1) is not a number."""
    calls = []

    def hook(gradient):
        calls.append(1)
        return gradient * math.nan if len(calls) == at else gradient

    model.output.bias.register_hook(hook)
    return calls


def test_a_gradient_with_nan_stops_and_the_last_state_stays_valid():
    model = network("luong", "dot")
    poison(model, 3)
    with pytest.raises(UserError, match=r"update 3: lower optimizer\.lr or trainer\.clip_norm"):
        fit(Trainer(max_epochs=5), model, [batch()])
    assert all(bool(torch.isfinite(p).all()) for p in model.parameters())


def test_a_bad_update_is_left_out_if_asked():
    ours, truth = network("luong", "dot"), network("luong", "dot")
    poison(ours, 2)
    progress, _, _ = fit(Trainer(max_epochs=3, on_nan="skip"), ours, [batch()])
    fit(Trainer(max_epochs=2), truth, [batch()])
    assert (progress.update, progress.skipped) == (3, 1)
    for mine, theirs in zip(ours.parameters(), truth.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_training_rolls_back_to_the_last_saved_state_if_asked():
    model = network("luong", "dot")
    calls = poison(model, 2)
    rates = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    progress, store, _ = fit(
        Trainer(max_epochs=3, on_nan="rollback"), model, [batch()], optimizer=optimizer
    )
    assert progress.update == 3
    assert len(calls) == 4
    assert rates == pytest.approx([0.1, 0.05, 0.05])
    assert store.last[0]["progress"]["halvings"] == 1


def test_a_batch_that_is_bad_in_itself_ends_the_rollbacks():
    """Good updates before it do not start the count again; a state that is saved after them does."""
    model, bad = network("luong", "dot"), batch((5,), (9,))
    seen = []

    def objective(network, data, update, total):
        seen.append(update)
        loss = CrossEntropy()(network, data, update)
        return replace(
            loss, total=loss.total * (math.nan if data.num_tokens == bad.num_tokens else 1.0)
        )

    task = Known(model, [batch(), batch(), batch(), bad])
    task.objective = objective
    optimizer, store = torch.optim.SGD(model.parameters(), lr=0.1), Store()
    with pytest.raises(UserError, match="is NaN or infinite"):
        Trainer(max_epochs=3, on_nan="rollback").fit(
            task, optimizer=optimizer, schedule=Constant(), store=store
        )
    assert len(seen) == 4 * MAX_FAILURES


def test_rollbacks_leave_one_record_of_each_update(tmp_path, monkeypatch):
    """Update 18 fails twice. The last saved state is that after update 10, the end of the first epoch."""
    plain, failures = CrossEntropy.__call__, [False, True, True]
    updates, restored = [], []

    def fails(self, network, batch, update=0, total=0):
        loss = plain(self, network, batch, update)
        if update == 17 and failures.pop():
            return replace(loss, total=loss.total * torch.nan)
        return loss

    class Seen(Callback):
        def on_update(self, update):
            updates.append(update.update)

        def on_rollback(self, update):
            restored.append(update)

    monkeypatch.setattr(CrossEntropy, "__call__", fails)
    run = nmt.train(
        "experiment=reverse", "data.train=20", "data.validation=2", "batching.sentences=2", "final_test=false",
        "sizes.encoder=8", "sizes.decoder=16", "sizes.readout=8", "model.embedding_size=8", "search=greedy",
        "trainer.max_epochs=2", "trainer.on_nan=rollback", "trainer.log_every=1", f"run_dir={tmp_path}/run", callbacks=[Seen()],
    )  # fmt: skip
    assert restored == [10, 10]
    assert updates == [*range(1, 18), *range(11, 18), *range(11, 21)]
    recorded = [record["update"] for record in run.metrics if record["kind"] == "train"]
    assert recorded == [*range(1, 21)]


def test_a_run_of_relative_paths_is_resumed_where_it_was_started(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for part in ("train", "val"):
        for language in ("a", "b"):
            (tmp_path / f"{part}.{language}").write_text("x y z\ny z\nz z x\n" * 4)
    words = [
        "data=text", "data.train=train", "data.validation=val", "data.source=a", "data.target=b", "experiment=null",
        "sizes.encoder=4", "sizes.decoder=4", "sizes.readout=4", "model.embedding_size=4", "tokenizer=char", "search=greedy",
        "trainer.max_epochs=2", "trainer.stop_after=1",
    ]  # fmt: skip
    folder = tmp_path / "run"
    assert run("train", *words, f"run_dir={folder}", cwd=tmp_path).returncode == 0
    resume = [f"resume={folder}", "trainer.stop_after=0"]
    failed(
        run("train", *resume, cwd=elsewhere),
        "train.a",
        f"relative paths refer to the folder {tmp_path},",
    )
    half = folder / f".best.safetensors{WRITING}"  # what a crash leaves
    half.write_bytes(b"half")
    done = run("train", *resume, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert not half.exists()


def test_what_was_saved_stays_when_training_ends_with_an_error(tmp_path, monkeypatch):
    """Before the first validation too; without an update that is saved, the folder is free again."""

    def fails_after(updates):
        def fit(self, task, *, store, **parts):
            state = TrainingState(
                task.network, parts["optimizer"], parts["schedule"], ema=0.0, scale=False
            )
            state.progress.update = updates
            store.save_last(*state.save())
            raise UserError("no number")

        return fit

    for updates in (0, 3):
        monkeypatch.setattr(Trainer, "fit", fails_after(updates))
        with pytest.raises(UserError, match="no number"):
            trained(tmp_path / f"run{updates}", *TINY)
        assert (tmp_path / f"run{updates}" / ckpt.LAST).exists() == (updates > 0)
    assert not (tmp_path / "run0").exists()


def test_a_nan_validation_is_never_best():
    with pytest.raises(UserError, match="validation loss or loss is NaN or infinite"):
        fit(Trainer(max_epochs=3), network("luong", "dot"), [batch()], [1.0, math.nan])


def test_weights_with_nan_are_never_loaded(tmp_path, run_dir):
    saved = ckpt.read(run_dir / ckpt.BEST)
    bad = {name: t.clone() for name, t in saved.tensors.items()}
    bad["model/output.bias"][0] = math.nan
    ckpt.write(tmp_path / "nan.safetensors", saved.meta, bad)
    with pytest.raises(UserError, match="weights contain NaN or inf"):
        nmt.load(tmp_path / "nan.safetensors")


def test_the_learning_rate_may_change_when_a_run_continues(tmp_path):
    folder = trained(tmp_path / "run", *TINY)
    assert (
        run(
            "train",
            f"resume={folder}",
            "trainer.max_epochs=3",
            "optimizer.lr=0.0001",
            "trainer.clip_norm=0.1",
        ).returncode
        == 0
    )
    saved = ckpt.read(folder / ckpt.LAST)
    assert saved.meta["config"]["optimizer"]["lr"] == 0.0001
    rates = [
        e["rate"]
        for e in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        if e["kind"] == "train"
    ]
    assert all(rate <= 0.0001 for rate in rates[-1:])
    failed(
        run("train", f"resume={folder}", "optimizer=sgd"),
        "optimizer=sgd: this setting cannot change",
    )


def test_the_latest_checkpoints_are_kept(tmp_path):
    folder = trained(tmp_path / "run", *TINY, "trainer.keep=2", "trainer.max_epochs=4")
    kept = sorted(folder.glob("last-*.safetensors"))
    assert [path.name for path in kept] == [
        "last-00000018.safetensors",
        "last-00000024.safetensors",
    ]
    assert ckpt.read(kept[-1]).meta["training"] == ckpt.read(folder / ckpt.LAST).meta["training"]
    assert nmt.load(kept[0]).translate(["a b"])
    copy = folder / "last-good.safetensors"  # a copy made by the user
    shutil.copy(kept[0], copy)
    longer = run("train", f"resume={folder}", "trainer.keep=1", "trainer.max_epochs=5")
    assert longer.returncode == 0, longer.stderr.decode()
    assert [*folder.glob("last-*.safetensors")] == [copy]


def test_copies_of_an_abandoned_continuation_are_removed(tmp_path):
    files = RunDirectory(path=tmp_path, meta={}, tensors={}, keep=2)
    for update in (10, 20, 30, 12, 14):
        files.save_last({"progress": {"update": update, "snapshots": []}}, {})
    names = sorted(path.name for path in tmp_path.glob("last-*"))
    assert names == ["last-00000012.safetensors", "last-00000014.safetensors"]
    (tmp_path / ckpt.LAST).write_bytes((tmp_path / ckpt.LAST).read_bytes()[:50])
    with pytest.raises(UserError, match=r"copy last-00000014\.safetensors to last"):
        ckpt.read(tmp_path / ckpt.LAST)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_ends_the_log_file_with_one_warning(tmp_path, capsys):
    (tmp_path / "train.log").symlink_to("/dev/full")
    try:
        set_up_logging(tmp_path / "train.log")
        for message in ("one", "two"):
            logging.getLogger("nmt").info(message)
    finally:
        logging.getLogger("nmt").handlers.clear()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 2)[2].partition(":")[0] for line in lines if "WARNING" in line] == [
        f"WARNING {tmp_path}/train.log"
    ]
    assert len(lines) == 3, lines


def test_a_message_that_cannot_be_formatted_does_not_end_the_log_file(tmp_path, capsys):
    try:
        set_up_logging(tmp_path / "train.log")
        for message, *values in (("score %d", "x"), ("folder %s", "caf\udce9"), ("later",)):
            logging.getLogger("nmt").info(message, *values)
    finally:
        for handler in logging.getLogger("nmt").handlers[:]:
            logging.getLogger("nmt").removeHandler(handler)
            handler.close()
    text = (tmp_path / "train.log").read_text()
    assert "caf\\udce9" in text
    assert "later" in text
    capsys.readouterr()


# Reading while writing; hostile files


def _replace(path, data):
    number = 0
    while not Path(f"{path}.stop").exists():
        number += 1
        temporary = Path(f"{path}.{number % 2}")
        temporary.write_bytes(data[number % 2])
        os.replace(temporary, path)


@pytest.mark.exhaustive
def test_a_file_that_is_replaced_is_not_damaged(tmp_path, run_dir):
    """Read again and again while another process replaces it."""
    path = tmp_path / "model.safetensors"
    data = [(run_dir / name).read_bytes() for name in (ckpt.BEST, ckpt.LAST)]
    path.write_bytes(data[0])
    writer = multiprocessing.get_context("fork").Process(target=_replace, args=(str(path), data))
    writer.start()
    seen = set()
    for _ in range(200):
        seen.add("training" in ckpt.read(path).meta)
        time.sleep(0.01)
    while len(seen) < 2:  # a slow machine has only begun
        seen.add("training" in ckpt.read(path).meta)
        assert writer.is_alive()
    Path(f"{path}.stop").touch()
    writer.join()
    assert writer.exitcode == 0


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_mutated_checkpoint_is_one_clean_message(run_dir, tmp_path, data):
    """Any bytes changed, cut or added: refused, and never a traceback; the checksum covers the header too."""
    whole = bytearray((run_dir / ckpt.BEST).read_bytes())
    header = int.from_bytes(whole[:8], "little") + 8
    kind = data.draw(st.sampled_from(["flip in header", "flip", "cut", "insert"]))
    place = data.draw(st.integers(0, (header if kind == "flip in header" else len(whole)) - 1))
    if kind.startswith("flip"):
        whole[place] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del whole[place:]
    else:
        whole[place:place] = data.draw(st.binary(min_size=1, max_size=9))
    path = tmp_path / "mutant.safetensors"
    path.write_bytes(whole)
    with pytest.raises(UserError, match=r"mutant\.safetensors"):
        nmt.load(path)


HOSTILE = [
    ("model", "embedding_size", 10**7), ("decoder", "num_layers", 10**7), ("encoder", "hidden_size", 10**9),
    ("translation", "max_length_offset", 10**9), ("decoder", "hidden_size", "8"), ("search", "width", 10**9),
    ("attention", "size", [1]), ("model", "dropout", float("nan")), ("decoder", "_target_", "os.system"),
    ("decoder", "_target_", ["x"]), ("encoder", "surprise", 1), ("translation", "max_source", -1), ("decoder", "cell", {}),
]  # fmt: skip


@pytest.mark.parametrize(("group", "key", "value"), HOSTILE)
def test_a_hostile_configuration_is_refused_before_anything_is_made(
    run_dir, tmp_path, group, key, value
):
    saved = ckpt.read(run_dir / ckpt.BEST)
    config = {**saved.meta["config"], group: {**saved.meta["config"][group], key: value}}
    ckpt.write(tmp_path / "evil.safetensors", {**saved.meta, "config": config}, saved.tensors)
    began = time.monotonic()
    with pytest.raises(UserError, match=r"evil\.safetensors"):
        nmt.load(tmp_path / "evil.safetensors")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "config", [None, [], "x", {"model": 1}, {"seed": {"a": 1}}, {"decoder": {}}]
)
def test_an_invalid_configuration_file_is_refused(run_dir, tmp_path, config):
    saved = ckpt.read(run_dir / ckpt.BEST)
    ckpt.write(tmp_path / "evil.safetensors", {**saved.meta, "config": config}, saved.tensors)
    with pytest.raises(UserError, match=r"evil\.safetensors"):
        nmt.load(tmp_path / "evil.safetensors")


def test_a_loaded_configuration_is_data(tmp_path, monkeypatch):
    """No reference in it is followed, whatever it names, and nothing of it lands in a file of the run."""
    monkeypatch.setenv("SECRET", "hunter2")
    folder = trained(tmp_path / "run", *TINY)
    saved = ckpt.read(folder / ckpt.LAST)
    config = {**saved.meta["config"], "run_dir": "${oc.env:SECRET}"}
    ckpt.write(folder / ckpt.LAST, {**saved.meta, "config": config}, saved.tensors)
    run("train", f"resume={folder}", "trainer.max_epochs=3")
    for path in folder.iterdir():
        assert b"hunter2" not in path.read_bytes(), path


@pytest.mark.parametrize(
    "damage",
    [{"progress": {"update": "x"}}, {"progress": None}, {"optimizer": {}}, {"schedule": []}, {}],
)
def test_a_damaged_state_is_refused(tmp_path, run_dir, damage):
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(run_dir / ckpt.BEST, folder)
    saved = ckpt.read(run_dir / ckpt.LAST)
    training = {**saved.meta["training"], **damage} if damage else {}
    ckpt.write(folder / ckpt.LAST, {**saved.meta, "training": training}, saved.tensors)
    failed(
        run("train", f"resume={folder}", "trainer.max_epochs=3"),
        "training state in the checkpoint is damaged",
    )


@pytest.mark.parametrize(
    "tensor", [torch.zeros(0), torch.full((3, 3), math.nan), torch.zeros(1, dtype=torch.int8)]
)
@pytest.mark.parametrize("kind", ["model/", "optimizer/"])
def test_tensors_of_another_size_are_refused(tmp_path, run_dir, kind, tensor):
    """Kernels would read beyond them."""
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(run_dir / ckpt.BEST, folder)
    saved = ckpt.read(run_dir / ckpt.LAST)
    name = next(name for name in sorted(saved.tensors) if name.startswith(kind))
    ckpt.write(folder / ckpt.LAST, saved.meta, {**saved.tensors, name: tensor})
    failed(
        run("train", f"resume={folder}", "trainer.max_epochs=3"),
        "training state in the checkpoint is damaged",
    )


# Rows, labels, caches, other input


def table(tmp_path, form, content):
    file = tmp_path / f"t.{form}"
    file.write_bytes(content)
    return TableFiles(format=form, train=str(file), validation=str(file), source="en", target="de")


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("csv", b"en,de\na,b\nA man,Ein Mann,0.93\n", "line 3: 3 columns, but the header has 2"),
        ("tsv", b"en\tde\na\n", "line 2: 1 column, but the header has 2"),
        ("csv", b"en\tde\na, b\tc\n", "For tab-separated columns, set data=tsv"),
        ("csv", b"en,de\na\rb,c\n", "line 2.*a carriage return inside a cell"),
        ("tsv", b"en\tde\na\rb\tc\n", "line 2.*a carriage return inside a cell"),
        ("csv", b'en,de\n"a,b\n', "cannot be read as a table"),
        ("csv", b"en,en\na,b\n", "duplicate column names"),
        ("csv", b"en,de\n", "contains no rows"),
        ("csv", b"en,de\na,\xff\n", "line 2: invalid UTF-8"),
        ("jsonl", b'{"en": "a", "de": "b"}\n{"en": "a"}\n', "line 2: JSON key de not found"),
        ("jsonl", b'{"en": "a", "de": "\xff"}\n', "line 1: invalid UTF-8"),
        ("jsonl", b"[" * 100_000 + b"\n", "line 1: invalid JSON"),
        ("jsonl", b"[1]\n", "expected a JSON object"),
        ("parquet", b"PAR1nonsense", "cannot be read as parquet"),
    ],
)
def test_a_table_that_is_not_one_names_its_line(tmp_path, form, content, message):
    with pytest.raises(UserError, match=message):
        table(tmp_path, form, content).load()


def test_a_table_keeps_the_text_of_its_cells(tmp_path):
    pairs = (
        table(tmp_path, "csv", b'\xef\xbb\xbfen,de\r\n"a, ""b""\nc",N/A\r\n\r\n1.50,null\r\n')
        .load()
        .train
    )
    assert list(pairs.source) == ['a, "b" c', "1.50"]
    assert list(pairs.target) == ["N/A", "null"]
    quoted = table(tmp_path, "tsv", b'en\tde\n"a\tb"\n').load().train
    assert (list(quoted.source), list(quoted.target)) == (['"a'], ['b"'])


def test_a_file_with_the_same_time_and_other_content_is_read_again(tmp_path):
    for form, first, second in (
        ("csv", b"en,de\na,b\n", b"en,de\nc,d\n"),
        ("jsonl", b'{"en":"a","de":"b"}', b'{"en":"c","de":"d"}'),
    ):
        data = table(tmp_path, form, first)
        assert list(data.load().train.source) == ["a"]
        file = tmp_path / f"t.{form}"
        times = file.stat()
        file.write_bytes(second)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert list(data.load().train.source) == ["c"]


def test_labels_stay_one_line_and_none_is_lost(tmp_path):
    def labels(values, **keys):
        file = tmp_path / "t.jsonl"
        file.write_text("".join(json.dumps({"text": "a", "label": v}) + "\n" for v in values))
        part = {"format": "jsonl", "train": str(file), "validation": str(file)}
        return TableFiles(**part, text="text", label="label", **keys).labelled().train.labels

    assert labels([0, "x\ny", " z "]) == [("0",), ("x y",), ("z",)]
    assert labels([0], separator=",") == [("0",)]
    with pytest.raises(UserError, match="row 1: a label in column 'label' is null"):
        labels([["x", None]])


def test_one_long_line_does_not_stop_a_tokenizer(caplog):
    from nmt.tokenizer import SentencePiece

    lines = ["a b c d e f g h"] * 50 + ["x" * 400_000]
    began = time.monotonic()
    with caplog.at_level("WARNING", "nmt"):
        SentencePiece(vocabulary_size=40).train(lines, [])
    assert time.monotonic() - began < 20
    assert "1 lines are longer than 10,000 characters" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 nan\n", "NaN, inf"),
        ("a 1 2\nb 1 x\n", "line 2"),
        ("a 1 2\nb 1\n", "line 2"),
        ("\n", "line 1"),
        ("a\n", "line 1: expected a word and the values"),
        ("a 0,1 0,2\n", "line 1: expected a word and the values"),
        ("word,d1,d2\n", "line 1: expected a word and the values"),
        ("a,1,2\nb,1\n", "line 1: expected a word and the values"),
    ],
)
def test_invalid_vectors_are_named(tmp_path, content, message):
    from nmt.data.word_vectors import read_vectors

    (tmp_path / "v").write_text(content)
    with pytest.raises(UserError, match=message):
        read_vectors(str(tmp_path / "v"))


def test_vectors_of_words_with_spaces_and_tabs(tmp_path):
    from nmt.data.word_vectors import read_vectors

    (tmp_path / "v").write_text("a 1 2\n. . . 3 4\nb\t5\t6\nat name@domain.com 7 8\n")
    result = read_vectors(str(tmp_path / "v"))
    assert {word: vector.tolist() for word, vector in result.items()} == {
        "a": [1, 2], ". . .": [3, 4], "b": [5, 6], "at name@domain.com": [7, 8],
    }  # fmt: skip
    (tmp_path / "w").write_text("2 3\na 1 2 3\nb 4 5 6\n")
    assert list(read_vectors(str(tmp_path / "w"))) == ["a", "b"]
    assert np.asarray(read_vectors(str(tmp_path / "w"))["b"]).tolist() == [4, 5, 6]


# Outputs


def test_a_strangers_partial_output_is_never_continued_or_overwritten(tmp_path, run_dir, small_run):
    source, output, partial = tmp_path / "in", tmp_path / "out", tmp_path / "out.partial"
    source.write_text("a b\n" * 3)
    command = "translate", f"input={source}", f"output={output}"
    partial.write_text("1\n2\n3\n")
    for extra in ([], ["resume=true"]):
        failed(
            run(*command, f"model={run_dir}", *extra),
            "with other settings or input (unknown origin)",
        )
    assert partial.read_text() == "1\n2\n3\n"
    from nmt.pipeline.fingerprint import fingerprint

    ours = fingerprint(configure("translate", [*command[1:], f"model={run_dir}"]))
    record = {"work": ours, "finished_lines": 0, "finished_bytes": 0}
    (tmp_path / "out.partial.json").write_text(json.dumps(record))
    failed(run(*command, f"model={small_run}", "resume=true"), "different model")
    failed(run(*command, f"model={run_dir}", "search=greedy", "resume=true"), "different settings")
    source.write_text("a c\n" * 3)
    failed(run(*command, f"model={run_dir}", "resume=true"), "different input")
    assert partial.read_text() == "1\n2\n3\n"
    source.write_text("a b\n" * 3)
    assert run(*command, f"model={run_dir}", "resume=true").returncode == 0
    source.write_text("a b\n" * 5)
    failed(
        run(*command, f"model={run_dir}", "resume=true"),
        "the existing file has 3 lines, expected 5",
    )


@pytest.mark.exhaustive
def test_a_full_disk_and_a_closed_stdout_are_messages(run_dir):
    command = [sys.executable, "-m", "nmt.translate", f"model={run_dir}"]
    full = subprocess.run(
        f"{' '.join(command)} > /dev/full", shell=True, input=b"a\n", capture_output=True
    )
    assert full.returncode == 74
    assert b"No space left" in full.stderr
    closed = subprocess.run(
        f"{' '.join(command)} >&-", shell=True, input=b"a\n", capture_output=True
    )
    assert closed.returncode == 1
    for result in (full, closed):
        assert b"Traceback" not in result.stderr, result.stderr
        assert b"Exception" not in result.stderr, result.stderr


@pytest.mark.exhaustive
def test_pipes_are_files(run_dir, tmp_path):
    (tmp_path / "in").write_text("a b\nc\n")
    shell = f"{sys.executable} -m nmt.translate model={run_dir} input=<(cat {tmp_path}/in) output={tmp_path}/out"
    assert subprocess.run(["bash", "-c", shell], capture_output=True).returncode == 0
    assert (tmp_path / "out").read_text().count("\n") == 2


def test_quotes_that_the_shell_needs_are_said():
    message = failed(run("translate", "model=x", "input=ü,ö.txt", "output=a,ü"))
    assert """input='"ü,ö.txt"'""" in message
    assert """output='"a,ü"'""" in message


@pytest.mark.exhaustive
def test_hangups_save_as_well(tmp_path, fork):
    folder = tmp_path / "run"
    process = fork("train", *TINY, "trainer.max_epochs=5000", f"run_dir={folder}")
    while process.poll() is None and not (folder / ckpt.BEST).exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 130
    assert f"resume={folder}" in (tmp_path / "fork.log").read_text()
    assert not list(folder.glob(".*"))


def test_an_ignored_signal_stays_ignored(monkeypatch):
    """A training under nohup survives the end of its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interruption:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interruption.requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert interruption.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_metrics_are_json_even_if_a_gradient_is_infinite(tmp_path):
    update = Update(update=1, total=2, epoch=0.5, loss=1.5, rate=0.1, gradient_norm=math.inf, speed=9.0)  # fmt: skip
    RunDirectory(path=tmp_path, meta={}, tensors={}).on_update(update)
    [line] = (tmp_path / "metrics.jsonl").read_text().splitlines()
    entry = json.loads(line, parse_constant=pytest.fail)
    assert (entry["loss"], entry["gradient_norm"]) == (1.5, "inf")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_final_test_is_a_stop(tmp_path, monkeypatch, number):
    """The exit status is that of an interrupted training, and the resumed run repeats the test."""
    folder = tmp_path / "run"
    translate = TranslationTask.test

    def interrupted(self):
        os.kill(os.getpid(), number)
        return translate(self)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, "test", interrupted)
        stopped = run("train", *TINY, f"run_dir={folder}")
    assert stopped.returncode == 130
    message = f"test interrupted, training finished and saved; repeat the test with: python -m nmt.train resume={folder}"
    assert message in stopped.stderr.decode()
    assert not (folder / "results.json").exists()
    assert run("train", f"resume={folder}").returncode == 0
    assert json.loads((folder / "results.json").read_text())["part"] == "test"


def test_a_signal_during_averaging_is_obeyed(tmp_path, monkeypatch):
    """The run saves its state and ends, and can be resumed."""
    from nmt.foundation.errors import Stopped
    from nmt.training.best_weights import BestWeights

    averaged = BestWeights.add_average
    monkeypatch.setattr(
        BestWeights,
        "add_average",
        lambda self: (os.kill(os.getpid(), signal.SIGTERM), averaged(self))[1],
    )
    with pytest.raises(Stopped):
        fit(Trainer(max_epochs=3, average=2), network("luong", "dot"), [batch()])


@pytest.mark.parametrize("is_set", [True, False])
def test_training_beside_busy_processes(is_set, tmp_path, monkeypatch):
    """A training without a set number of threads takes the fastest one."""
    monkeypatch.setattr(busy_cores, "operations_per_second", {1: 10.0, 2: 1.0}.get)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if is_set:
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        folder = trained(tmp_path / "run", *TINY)
        assert torch.get_num_threads() == (2 if is_set else 1)
        text = (folder / "train.log").read_text()
        assert ("training now uses 1 of 2 threads" in text) != is_set
        assert ckpt.read(folder / ckpt.LAST).meta["threads"] == 2
    finally:
        torch.set_num_threads(before)


def test_threads_are_kept_with_a_run(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(busy_cores, "operations_per_second", float)  # more threads are faster
    folder = trained(tmp_path / "run", *TINY)
    here = torch.get_num_threads()
    assert ckpt.read(folder / ckpt.LAST).meta["threads"] == here
    try:
        torch.set_num_threads(here + 1)
        result = run("train", f"resume={folder}", "trainer.max_epochs=3")
        assert (
            f"threads: using {here} threads, as in the interrupted training".encode()
            in result.stderr
        )
        assert torch.get_num_threads() == here
        monkeypatch.setenv("OMP_NUM_THREADS", str(here + 1))  # set by the user: it wins
        torch.set_num_threads(here + 1)
        result = run("train", f"resume={folder}", "trainer.max_epochs=4")
        assert f"continues with {here + 1}, as set".encode() in result.stderr
        assert torch.get_num_threads() == here + 1
    finally:
        torch.set_num_threads(here)


def test_a_much_smaller_machine_keeps_its_threads(caplog):
    many = 4 * (os.cpu_count() or 1) + 1
    before = torch.get_num_threads()
    use_threads_of(SimpleNamespace(meta={"threads": many}), False)
    assert torch.get_num_threads() == before
    assert f"continues with {before}, because this machine has only" in caplog.text


def test_the_cache_needs_no_home_folder(monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("NMT_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("NMT_CACHE")
    with pytest.raises(UserError, match="set NMT_CACHE"):
        cache_folder()


def test_damaged_records_do_not_stop_a_run(tmp_path):
    folder = trained(tmp_path / "run", *TINY)
    (folder / "run.json").write_text("{")
    with open(folder / "metrics.jsonl", "ab") as file:
        file.write(b'\xff\n[1]\n{"kind": 3\nnull\n' + b"[" * 50_000)
    result = run("train", f"resume={folder}", "trainer.max_epochs=3")
    assert result.returncode == 0, result.stderr.decode()
    assert b"the record of earlier commands is lost" in result.stderr


@pytest.mark.parametrize("moment", ["update", "validation", "the test"])
def test_a_folder_that_disappears_is_one_message(tmp_path, monkeypatch, moment):
    folder = tmp_path / "run"
    original = {
        "update": (RunDirectory, "on_update"), "validation": (RunDirectory, "on_validation"),
        "the test": (TranslationTask, "test"),
    }[moment]  # fmt: skip
    action = getattr(*original)

    def gone(self, *arguments):
        shutil.rmtree(folder, ignore_errors=True)
        return action(self, *arguments)

    monkeypatch.setattr(*original, gone)
    failed(run("train", *TINY, "trainer.log_every=1", f"run_dir={folder}"), str(folder))


def test_gold_links_out_of_range_are_counted(tmp_path, run_dir):
    for name, text in (("s", "a b\nc\n"), ("t", "b a\nc\n"), ("gold", "0-0 2-0\n0-0 0-1 7?9\n")):
        (tmp_path / name).write_text(text)
    files = [
        f"{key}={tmp_path}/{name}"
        for key, name in (("source", "s"), ("target", "t"), ("gold", "gold"))
    ]
    result = run("align", f"model={run_dir}", *files)
    assert result.returncode == 0, result.stderr.decode()
    assert b"3 alignment links refer to words after the end of their line" in result.stderr


def test_gold_links_one_a_line(tmp_path, run_dir):
    """The format of the shared tasks (NAACL 2003): pair, source word, target word, from 1."""
    texts = {"s": "a b\nc\n", "t": "b a\nc\n", "pharaoh": "0-1 1?0\n0-0\n",
             "wa": "0001 1 2 S\n0001 2 1 P 0.5\n0001 0 2 S\n0002 1 1\n"}  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    command = f"model={run_dir}", f"source={tmp_path}/s", f"target={tmp_path}/t"
    rates = [
        re.search(rb"error rate [\d.]+", run("align", *command, f"gold={tmp_path}/{gold}").stderr)[
            0
        ]
        for gold in ("pharaoh", "wa")
    ]
    assert rates[0] == rates[1]
    (tmp_path / "wa").write_text("3 1 1 S\n")
    failed(
        run("align", *command, f"gold={tmp_path}/wa"),
        "wa, line 1: sentence pair 3 not found; the source file has 2 sentences",
    )
    (tmp_path / "wa").write_text("0-0\n")
    failed(run("align", *command, f"gold={tmp_path}/wa"), "has 1 lines", "one line per link")


def test_a_reverse_model_of_the_same_direction_is_refused(tmp_path, run_dir):
    (tmp_path / "s").write_text("a b\n")
    command = f"source={tmp_path}/s", f"target={tmp_path}/s", f"model={run_dir}"
    failed(
        run("align", *command, f"reverse={run_dir}"),
        "reverse: the model translates from forward to backward",
    )


@pytest.mark.exhaustive
def test_a_closed_stdin_is_a_message(run_dir):
    command = f"{sys.executable} -m nmt.translate model={run_dir} <&-"
    result = subprocess.run(["bash", "-c", command], capture_output=True)
    failed(result, "input=stdin: stdin is closed; give input=FILE")


def test_text_with_bars_in_an_n_best_list(tmp_path, run_dir):
    """The number stands in front, features and score at the end: what is between them is text."""
    (tmp_path / "s").write_text("a b\n")
    (tmp_path / "text").write_text("b ||| a\n")
    lists = ["f= 1 ||| -1", "f= 1 ||| NaN", "f= 1 ||| -1 ||| 0=0,1 ||| 0-0 1-1"]
    (tmp_path / "nbest").write_text("".join(f"0 ||| b ||| a ||| {end}\n" for end in lists))
    command = f"model={run_dir}", f"source={tmp_path}/s"
    truth = run("score", *command, f"target={tmp_path}/text").stdout.decode().strip()
    lines = run("score", *command, f"nbest={tmp_path}/nbest").stdout.decode().splitlines()
    assert lines == [f"0 ||| b ||| a ||| f= 1 nmt= {truth} ||| {truth}"] * 3


def test_what_cannot_continue_leaves_nothing(tmp_path, run_dir):
    """nmt.score, nmt.align and nmt.label begin again: half an output would be of no use."""
    (tmp_path / "s").write_text("a\n")
    (tmp_path / "nbest").write_text(f"0 ||| a ||| x\n{10**30} ||| a ||| x\n")
    command = (
        f"model={run_dir}",
        f"source={tmp_path}/s",
        f"nbest={tmp_path}/nbest",
        f"output={tmp_path}/out",
    )
    failed(run("score", *command), "nbest, line 2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nbest", "s"]


@pytest.mark.exhaustive
def test_a_sweep_of_many_keys_has_names_that_file_systems_take(tmp_path):
    many = [f"{key}={value}" for key, value in (
        ("trainer.patience", 7), ("translation.max_length_factor", 2.5), ("translation.max_length_offset", 12),
        ("model.word_dropout", 0.01), ("objective.label_smoothing", 0.05), ("schedule.warmup", 12), ("trainer.clip_norm", 2.0),
        ("batching.pool", 10), ("filters.max_length", 99), ("model.readout_dropout", 0.1), ("trainer.log_every", 5),
    )]  # fmt: skip
    result = run(
        "train",
        "-m",
        *TINY,
        *many,
        "seed=1,2",
        "trainer.max_updates=1",
        f"run_dir={tmp_path}/sweep",
    )
    assert result.returncode == 0, result.stderr.decode()
    names = [path.parent.name for path in tmp_path.glob("sweep/*/results.json")]
    assert len(set(names)) == 2
    assert all(len(name) <= 130 for name in names)


def test_composed_configurations_have_no_run_dir_of_their_own():
    assert compose()["run_dir"] is None


def test_a_finished_run_names_settings_that_change_nothing(tmp_path):
    folder = trained(tmp_path / "run", *TINY)
    result = run("train", f"resume={folder}", "optimizer.lr=0.1")
    assert result.returncode == 0
    assert b"is finished" in result.stderr
    assert b"changed settings optimizer.lr" in result.stderr
    assert b"have no effect" not in run("train", f"resume={folder}").stderr


def test_a_process_that_makes_batches_and_is_killed_is_a_message(tmp_path, monkeypatch):
    """As the system kills it when the memory is full; what was saved continues."""
    from nmt.data.epoch_batches import EpochBatches

    make, parent = EpochBatches.__getitem__, os.getpid()

    def dies(self, i):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return make(self, i)

    monkeypatch.setattr(EpochBatches, "__getitem__", dies)
    folder = tmp_path / "run"
    typed = ["experiment=reverse", "data.train=40", "data.validation=4", "tokenizer.sampling=0.3"]
    result = run("train", *typed, "tokenizer=bpe", "batching.sentences=10", f"run_dir={folder}")
    failed(result, "a DataLoader worker was killed, perhaps for lack of memory")


def test_who_comes_second_by_a_moment_is_reported(tmp_path, monkeypatch):
    """Both processes find no folder; the other one has created it and writes in it."""
    folder = tmp_path / "run"
    lock = claim(folder)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    with pytest.raises(LockHeld, match=f"process {os.getpid()} .* is writing to it"):
        claim(folder)
    monkeypatch.undo()
    assert folder.is_dir()
    lock.release()


def test_the_same_command_starts_and_resumes(tmp_path):
    """resume=auto: a new run, then the rest of it, then nothing; a fixed setting is not changed by the way."""
    folder = tmp_path / "run"
    command = [*TINY, f"run_dir={folder}", "resume=auto"]
    first = run("train", *command, "trainer.stop_after=1")
    assert first.returncode == 0, first.stderr
    failed(run("train", *command, "attention.size=5"), "attention.size", "cannot change on resume")
    second = run("train", *command)
    assert second.returncode == 0, second.stderr
    assert b"continuing the training" in second.stderr
    assert b"is finished" in run("train", *command).stderr
    failed(run("train", "resume=auto"), "resume=auto", "add run_dir=DIR")


def test_files_that_a_run_did_not_write_are_never_removed(tmp_path):
    """A folder with files that have names of a run's files is refused; other files stay."""
    for name in ("validation-en.txt", "test.txt", "train.log", "notes"):
        (tmp_path / name).write_text(name)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}
    failed(run("train", *TINY, f"run_dir={tmp_path}"), "not belong to a run (test.txt, validation-en.txt)")  # fmt: skip
    assert {path.name: path.read_text() for path in tmp_path.glob("[!.]*")} == before
    for name in ("validation-en.txt", "test.txt"):
        (tmp_path / name).unlink()
    missing = [
        "data=text",
        "data.train=nowhere",
        "data.validation=nowhere",
        "data.source=a",
        "data.target=b",
    ]
    failed(run("train", *missing, f"run_dir={tmp_path}"), "file not found")
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["notes", "train.log"]
    assert (tmp_path / "train.log").read_text().startswith("train.log")


def test_a_path_that_cannot_be_accessed_is_a_message(run_dir):
    failed(
        run("translate", f"model={'a' * 300}", stdin="a\n"),
        "cannot be accessed (File name too long)",
    )


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"format": math.inf}, "not a checkpoint of nmt"),
        ({"typical_words": 5}, "configuration is invalid"),
        ({"tokenizer": {"columns": {"sources": 10**7}}}, "sources=10000000"),
    ],
)
def test_a_crafted_header_is_a_message(run_dir, tmp_path, meta, message):
    saved = ckpt.read(run_dir / ckpt.BEST)
    meta = {**meta, "tokenizer": {**saved.meta["tokenizer"], **meta.get("tokenizer", {})}}
    ckpt.write(tmp_path / "other.safetensors", {**saved.meta, **meta}, saved.tensors)
    with pytest.raises(UserError, match=message):
        nmt.load(tmp_path / "other.safetensors")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int32, torch.complex64, torch.bool])
def test_weights_are_floating_point_numbers(run_dir, tmp_path, dtype):
    saved = ckpt.read(run_dir / ckpt.BEST)
    tensors = dict(saved.tensors)
    name = next(name for name in tensors if name.startswith("model/"))
    tensors[name] = tensors[name].to(dtype)
    ckpt.write(tmp_path / "other.safetensors", saved.meta, tensors)
    with pytest.raises(UserError, match="damaged checkpoint"):
        nmt.load(tmp_path / "other.safetensors")
