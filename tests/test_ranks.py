"""Several processes train as one: the same losses, the same weights, one voice; and a death ends all, or is undone."""

import datetime
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import forked
import psutil
import pytest
import torch
from commands import ROOT, failed
from commands import run as command
from torch.distributed import TCPStore

from nmt.foundation import torchrun
from nmt.foundation.errors import UserError
from nmt.foundation.ranks import ALONE, Ranks
from nmt.foundation.torchrun import note_folder, noted_folder
from nmt.storage import checkpoint as ckpt
from nmt.training import optimizer as optimizer_module
from nmt.training.optimizer import CLASSES
from nmt.training.schedule import Constant
from nmt.training.state import TrainingState

OF_TORCH = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


@pytest.fixture
def process_group(tmp_path):
    """The process group of a single rank."""
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def stepped(optimizer, parameter, count):
    for _ in range(count):
        parameter.grad = torch.full_like(parameter, 0.5)
        optimizer.step()
    return parameter.detach()


@OF_TORCH
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_sharded_optimizer_is_that_optimizer(process_group, name):
    makers = (getattr(optimizer_module, name), lambda **given: Ranks().sharded(getattr(optimizer_module, name)(**given)))  # fmt: skip
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4)) for _ in makers]
    alone, sharded = (stepped(make(parameters=[w]), w, 3) for make, w in zip(makers, weights, strict=True))  # fmt: skip
    assert torch.equal(alone, sharded)
    assert not torch.equal(alone, torch.linspace(-1, 1, 12).view(3, 4))


@OF_TORCH
def test_momentum_may_be_turned_on_with_a_sharded_rmsprop(process_group):
    network = torch.nn.Linear(3, 2)
    parameters = list(network.parameters())
    states = []
    for momentum in (0.0, 0.9):
        optimizer = Ranks().sharded(
            optimizer_module.RMSprop(parameters=parameters, momentum=momentum)
        )
        states.append(TrainingState(network, optimizer, Constant(), ema=0, scale=False))
    before, after = states
    stepped(before.optimizer, parameters[0], 2)
    before.optimizer.consolidate_state_dict()
    after.load(*before.save())
    saved = parameters[0].detach().clone()
    assert not torch.equal(stepped(after.optimizer, parameters[0], 1), saved)


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
TINY = [
    "experiment=reverse", "data.train=200", "data.validation=21", "data.test=20", "trainer.max_epochs=4", "sizes.encoder=8",
    "sizes.decoder=16", "sizes.readout=8", "model.embedding_size=8", "attention.size=8", "trainer.log_every=1", "device=cpu",
    "model.dropout=0.1", "trainer.save_every=0", "batching.sentences=10", "search=greedy", "trainer.ema=0.9", "trainer.average=2",
    "time_budget=10h",
]  # fmt: skip


PATH = f"{ROOT}{os.pathsep}{Path(__file__).parent}"


def start(*arguments, prefix=TORCHRUN, folder=None):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen([*prefix, *arguments], cwd=folder or ROOT, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


def forks(module, *arguments, second=None):
    """Two ranks, which are forks with torchrun's variables: their exit statuses, and what they print.

    second: arguments of rank 1 (None: the same)"""
    assert torch.get_num_threads() == 1, "otherwise the ranks are no forks"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = {"0": arguments, "1": second or arguments}
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    ranks = []
    with tempfile.TemporaryFile("w+") as output:
        for rank in ("0", "1"):
            variables = {**world, "RANK": rank, "LOCAL_RANK": rank, "MASTER_PORT": port}
            process = forked.popen(
                [sys.executable, "-m", module, *words[rank]],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": PATH, **variables},
            )
            ranks.append(process)
        try:
            statuses = [rank.wait(400) for rank in ranks]
        except subprocess.TimeoutExpired:
            for rank in ranks:
                rank.end_with_stacks()
            output.seek(0)
            raise AssertionError(f"ranks did not end:\n{output.read()}") from None
        output.seek(0)
        return statuses, output.read()


def trained(*overrides):
    """Trains with two ranks; returns what they print."""
    statuses, printed = forks("nmt.train", *overrides)
    assert statuses == [0, 0], printed
    return printed


def weights(folder, file=ckpt.LAST):
    return {name: tensor.clone() for name, tensor in ckpt.read(Path(folder) / file).tensors.items()}


def farthest(a, b):
    assert {*a} == {*b}
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in a)


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A run of two ranks that nothing has interrupted, and what it printed."""
    folder = tmp_path_factory.mktemp("ranks") / "whole"
    return folder, trained(*TINY, f"run_dir={folder}")


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """Results of two_ranks.py."""
    file = tmp_path_factory.mktemp("two") / "found.json"
    statuses, output = forks("two_ranks", str(file))
    assert statuses == [0, 0], output
    return json.loads(file.read_text())


@pytest.mark.exhaustive
def test_two_ranks_are_one_with_accumulation(found):
    """Every decoder, three objectives, classification, pictures; dropout and sampled words included."""
    networks = {name: value for name, value in found.items() if isinstance(value, dict)}
    assert len(networks) >= 19
    for name, value in networks.items():
        assert value["between ranks"] == 0.0, name
        assert value["updates"] == 5
        if (
            name != "reinforce"
        ):  # its baseline is the mean of both ranks': they see the same batches at the same time
            assert value["losses"] < (1e-5 if name in ("float32", "pictures") else 1e-12), name
            assert value["weights"] < (1e-4 if name in ("float32", "pictures") else 1e-10), name


@pytest.mark.exhaustive
def test_messages_between_ranks(found):
    assert found["whole"] == [*range(7)]
    assert found["claimed"] == ["abcdef"] * 2
    assert found["of the first"] == 0
    assert found["sums"] == [1.0, 1.0]
    assert "same configuration, but rank 1 differs from rank 0: " in found["disagreement"]
    assert not found["kept group"], "its threads may not survive the end of Python"
    assert found["kept threads"] == [], "one may wait for the lock of the thread that joins it"


@pytest.mark.parametrize("has_arrived", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_a_rank_that_ends_before_all_are_connected(small_run, tmp_path, monkeypatch, has_arrived):
    """Rank 0 ends with a message, long before the time limit of a collective operation."""
    minute = datetime.timedelta(minutes=1)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=minute)
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    world |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "PYTHONPATH": PATH}

    words = [
        f"model={small_run}",
        f"input={ROOT}/README.md",
        f"output={tmp_path}/out",
        "device=cpu",
    ]

    def started(rank, file):
        variables = {**os.environ, **world, "RANK": rank, "LOCAL_RANK": rank}
        translate = [sys.executable, "-m", "nmt.translate", *words]
        return forked.popen(translate, stdout=file, stderr=subprocess.STDOUT, env=variables)

    with open(tmp_path / "printed", "wb") as file:
        if has_arrived:
            keys = store.num_keys()
            lost = started("1", file)
            while store.num_keys() == keys:  # until the rank has published its address
                time.sleep(0.05)
            lost.send_signal(signal.SIGKILL)
            lost.wait(10)
        monkeypatch.setattr(torchrun, "MEETING_TIMEOUT", datetime.timedelta(seconds=1))
        monkeypatch.setattr(torchrun, "ROLL_CALL_SECONDS", 0.1)
        assert started("0", file).wait(100) == 1
    printed = (tmp_path / "printed").read_text()
    assert printed.count("rank 1 of 2 has ended") == 1, printed
    assert "Traceback" not in printed


@pytest.mark.exhaustive
def test_a_rank_may_be_late_after_all_are_connected(small_run, tmp_path, monkeypatch):
    original = Ranks.agree

    def late(self, *arguments):
        time.sleep(8 * self.number)
        return original(self, *arguments)

    monkeypatch.setattr(torchrun, "MEETING_TIMEOUT", datetime.timedelta(seconds=5))
    monkeypatch.setattr(Ranks, "agree", late)
    (tmp_path / "in").write_text("a b\n")
    words = [f"model={small_run}", f"input={tmp_path}/in", f"output={tmp_path}/out", "device=cpu"]
    statuses, printed = forks("nmt.translate", *words)
    assert statuses == [0, 0], printed


def test_one_rank_needs_no_others():
    assert ALONE.sums(1.5, 2) == [1.5, 2]
    assert ALONE.gather("x") == ["x"]
    assert ALONE.whole(ALONE.share([1, 2, 3])) == [1, 2, 3]
    assert ALONE.wrapped("network") == "network"
    ALONE.agree("anything", object(), "")
    three = [Ranks(number, 3) for number in range(3)]
    assert [rank.share([*range(7)]) for rank in three] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.exhaustive
def test_a_run_of_two_ranks_is_a_whole_run(whole, tmp_path):
    """One voice, the usual files; the same figures as one process that accumulates; and the same bytes again."""
    folder, output = whole
    assert output.count("trained ") == 1
    assert output.count("Commands for this model:") == 1
    assert "2 processes, each on cpu" in output
    assert {"results.json", "metrics.jsonl", "test.txt", ckpt.LAST, ckpt.BEST} <= {
        path.name for path in folder.iterdir()
    }
    again = trained(*TINY, f"run_dir={tmp_path}/again")
    assert again.count("validation after") == output.count("validation after")
    assert farthest(weights(folder), weights(tmp_path / "again")) == 0.0
    alone = command("train", *TINY, "trainer.accumulate=2", f"run_dir={tmp_path}/alone")
    assert alone.returncode == 0
    assert farthest(weights(folder), weights(tmp_path / "alone")) < 1e-4
    mine, theirs = (
        json.loads((path / "results.json").read_text()) for path in (folder, tmp_path / "alone")
    )
    assert mine["updates"] == theirs["updates"]
    assert mine["validation"]["loss"] == pytest.approx(theirs["validation"]["loss"], rel=1e-4)


@pytest.mark.exhaustive
def test_another_number_of_ranks_continues(whole, tmp_path):
    """Two ranks that share what the optimizer remembers, then one, then two again."""
    folder = tmp_path / "run"
    trained(*TINY, f"run_dir={folder}", "trainer.stop_after=1", "trainer.shard=true")
    alone = "trainer.stop_after=2", "trainer.accumulate=2"
    assert b"needs several processes" in command("train", f"resume={folder}", *alone).stderr
    result = command("train", f"resume={folder}", *alone, "trainer.shard=false")
    assert result.returncode == 0, result.stderr.decode()
    trained(
        f"resume={folder}", "trainer.stop_after=0", "trainer.accumulate=1", "trainer.shard=true"
    )
    assert farthest(weights(whole[0]), weights(folder)) < 1e-4


def ranks_of(process):
    """The processes of a torchrun, by their ranks."""
    result = {}
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            environment = child.environ()
        except psutil.Error:
            continue
        if "nmt.train" in child.cmdline() and "RANK" in environment:
            result[int(environment["RANK"])] = child
    return result


def kill(process, folder, rank, updates):
    """SIGKILLs a rank once the run has come so far."""
    until, records = time.monotonic() + 200, folder / "metrics.jsonl"
    while time.monotonic() < until and process.poll() is None:
        lines = records.read_text().splitlines() if records.exists() else []
        if any('"train"' in line and f'"update": {updates},' in line for line in lines):
            os.kill(ranks_of(process)[rank].pid, signal.SIGKILL)
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[0])


@pytest.mark.exhaustive
def test_a_death_is_undone_or_ends_all(whole, tmp_path):
    """Rank 1 dies, and torchrun starts all again; rank 0 dies, and there are no restarts left: the others end within a minute,
    and name the lost rank. The resumed run equals an uninterrupted one bit for bit."""
    folder = tmp_path / "run"
    process = start(
        "-m", "nmt.train", *TINY, f"run_dir={folder}", prefix=[*TORCHRUN, "--max-restarts=1"]
    )
    kill(process, folder, 1, 8)
    kill(process, folder, 0, 21)
    began = time.monotonic()
    output = process.communicate(timeout=120)[0]
    assert time.monotonic() - began < 60
    assert process.returncode != 0
    assert "continuing the training" in output
    assert output.count("rank 1 of 2 has ended") == 1
    assert output.count("rank 0 of 2 has ended") == 1
    trained(f"resume={folder}")
    assert farthest(weights(whole[0]), weights(folder)) == 0.0
    assert farthest(weights(whole[0], ckpt.BEST), weights(folder, ckpt.BEST)) == 0.0


@pytest.mark.exhaustive
def test_what_is_wrong_is_reported_once_and_ends_all(tmp_path):
    run_dir = f"run_dir={tmp_path}/run"
    process, began = (
        start("-m", "nmt.train", *TINY, run_dir, "trainer.max_epoch=3"),
        time.monotonic(),
    )
    output = process.communicate(timeout=200)[0]
    assert process.returncode != 0
    assert output.count("trainer.max_epoch") == 1, output
    assert f'File "{ROOT / "nmt"}' not in output  # torchrun's own traceback alone
    assert time.monotonic() - began < 90
    statuses, output = forks("nmt.train", *TINY, run_dir, "batching.sentences=1000")
    assert 0 not in statuses
    assert output.count("an epoch has only 1 batch for 2 processes") == 1, output
    assert f'File "{ROOT / "nmt"}' not in output


def test_commands_of_one_process_are_refused_under_torchrun(monkeypatch, small_run):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    assert (
        b"runs in a single process; start the command without torchrun"
        in command("export", f"model={small_run}", "format=onnx", "output=x").stderr
    )
    assert b"without torchrun" in command("train", "-m", "seed=1,2").stderr


def test_a_gpu_for_each(monkeypatch):
    from nmt.foundation import devices

    monkeypatch.setattr(devices, "find_device", lambda name: torch.device(name))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        UserError, match=r"rank 1 has no GPU: this machine has 1.*--nproc-per-node=1"
    ):
        devices.device_of(Ranks(1, 2, 1), "cuda")
    with pytest.raises(UserError, match="2 processes would share one GPU"):
        devices.device_of(Ranks(1, 2, 1), "cuda:0")
    assert devices.device_of(ALONE, "cuda:0") == torch.device("cuda:0")


def test_the_first_rank_owns_the_store_unless_torchrun_does(monkeypatch):
    """Only one process may open the port; all others connect to it."""
    owners, kept = [], {}

    def opened(host, port, *, is_master, timeout, multi_tenant):
        owners.append(is_master)
        return SimpleNamespace(
            set=kept.__setitem__,
            get=lambda key: kept[key].encode(),
            check=lambda keys: all(key in kept for key in keys),
        )

    monkeypatch.setattr(torch.distributed, "TCPStore", opened)
    assert noted_folder() is None
    note_folder("runs/x")
    assert not owners  # without torchrun, no store is opened
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
    for name, value in {**address, "WORLD_SIZE": "2", "LOCAL_RANK": "0", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert noted_folder() is None
    note_folder("runs/x")
    assert noted_folder() == "runs/x"
    assert owners == [True] * 3
    monkeypatch.setenv("RANK", "1")
    noted_folder()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    noted_folder()
    assert owners[3:] == [False, False]


def test_a_restarted_process_resumes_the_run_whose_folder_was_noted(tmp_path, monkeypatch):
    """Without `run_dir`, the replacement of a process finds the run of its predecessor in torchrun's store."""
    from nmt.pipeline import run_training

    monkeypatch.chdir(tmp_path)
    small = [*TINY, "trainer.max_epochs=1"]
    assert command("train", *small, "trainer.stop_after=1", "trainer.max_epochs=2").returncode == 0
    [folder] = (tmp_path / "runs").iterdir()
    assert ckpt.read(folder / ckpt.LAST).meta["training"]["progress"]["epoch"] == 1
    monkeypatch.setattr(run_training, "noted_folder", lambda: f"runs/{folder.name}")
    restarted = {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"
    }  # fmt: skip
    assert command("train", *small, "trainer.max_epochs=2", env=restarted).returncode == 0
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.name]
    assert (folder / "results.json").exists()


def test_a_restarted_process_refuses_the_run_of_another_command(tmp_path):
    """The restarted command had claimed no folder before."""
    small = [*TINY, f"run_dir={tmp_path}/run"]
    assert command("train", *small).returncode == 0
    before = (tmp_path / "run" / ckpt.LAST).read_bytes()
    restarted = {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TORCHELASTIC_RESTART_COUNT": "1"
    }  # fmt: skip
    failed(
        command("train", *small, "trainer.max_epochs=2", env=restarted), f"resume={tmp_path}/run"
    )
    assert (tmp_path / "run" / ckpt.LAST).read_bytes() == before
