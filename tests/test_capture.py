"""Recordings of updates and search steps (nmt/foundation/capture.py).

Recordings are tested on the CPU, where a replay calls the function, and on the device of other_device.py, where a replay
runs the recorded operators and no Python code, as a CUDA graph.
"""

import contextlib
import copy
import logging
from dataclasses import replace

import pytest
import torch
from builders import batch, choices, network
from coverings import product
from other_device import HAS_GPU, CUDAGraph, bare, other_device, simulated
from test_other_device import (
    CONSTRAINTS,
    NEEDS_ATTENTION,
    SEARCHES,
    adam,
    objective,
    possible,
    tiny,
)
from test_trainer import Known, Store, Watch

from nmt.foundation import capture, fusion
from nmt.foundation.capture import Recordings, bucket, copy_into
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Request, to_device
from nmt.inference.captured_step import CapturedStep, StepRecordings
from nmt.inference.networks import Networks
from nmt.model.layers.cells import gru
from nmt.model.layers.packed import PackedWeights, generating
from nmt.search.constrained import Constrained
from nmt.tokenizer.columns import Columns
from nmt.training import schedule
from nmt.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures(
    "unchecked"
)  # signatures: the tests of decoders, objectives and searches

OPTIONS = (
    "plain", "copy", "lexical", "local_p", "local_m", "lstm", "deep", "reversed", "coverage", "multi_head",
)  # fmt: skip
RECORDED = ("cross_entropy", "r_drop", "distillation")
BATCHES = [batch(), batch((2, 7), (3, 5)), batch((4,), (3,)), batch((9, 3, 5), (2, 10, 4))]
DEVICES = ("cpu", "cuda")
ON_THE_DEVICE = pytest.param("cuda", marks=pytest.mark.exhaustive)
"""For long trainings: the other tests of trainings run on both devices by default."""


def test_sizes_are_rounded_to_few():
    sizes = [bucket(size) for size in range(1, 1025)]
    assert all(rounded >= size for size, rounded in enumerate(sizes, 1))
    assert sizes == sorted(sizes)
    assert [bucket(size) for size in {*sizes}] == [*{*sizes}]
    assert len({*sizes}) < 36
    assert all(rounded <= 1.25 * size for size, rounded in enumerate(sizes, 1) if size > 32)
    assert [bucket(size) for size in (1, 3, 8, 9, 64, 65, 80, 130)] == [
        1,
        4,
        8,
        16,
        64,
        80,
        80,
        160,
    ]


@pytest.mark.parametrize(
    ("decoder", "goal", "option", "there"),
    product(
        choices("decoder"), RECORDED, OPTIONS, DEVICES,
        allowed=lambda decoder, goal, option, there: (
            (decoder != "fixed" or option not in NEEDS_ATTENTION)
            and (option != "copy" or goal != "r_drop")
        ), large=True),
)  # fmt: skip
def test_padding_changes_no_loss(decoder, goal, option, there):
    """Loss and gradient of a padded batch are those of the batch, on both devices."""
    model, goal, data = tiny(decoder, option).double(), objective(goal), BATCHES[3]
    for teacher in getattr(goal, "teachers", ()):
        teacher.double()

    def result(network, data):
        loss = goal(network.train(), data, 0)
        loss.total.backward()
        gradients = [p.grad for p in network.parameters()]
        return bare([loss.total.detach(), loss.nll.detach(), *gradients])

    truth = result(copy.deepcopy(model), data)
    padded = data.padded(bucket)
    assert padded.source.shape == (4, 16)
    assert padded.targets.shape == (4, 16)
    with other_device() if there == "cuda" else contextlib.nullcontext():
        if there == "cuda":
            for teacher in getattr(goal, "teachers", ()):
                teacher.to("cuda")
        actual = result(copy.deepcopy(model).to(there), to_device(padded, torch.device(there)))
    for mine, theirs in zip(actual, truth, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-10)


class Padded(Known):
    """A task whose batches can be padded."""

    capture_obstacle = ""

    def __init__(self, network, batches, goal, **options):
        super().__init__(network, batches, **options)
        self.goal = goal

    def objective(self, network, batch, update, total):
        return self.goal(network, batch, update, total)


def fitted(model, there, *, batches=BATCHES * 2, goal=None, resume=None, **settings):
    """Trains on a device. Returns the network, what was saved last, and the reports."""
    settings = {"max_epochs": 2, "log_every": 2, **settings}
    with other_device() if there == "cuda" else contextlib.nullcontext():
        model = copy.deepcopy(model).to(there)
        store, watch = Store(), Watch()
        task = Padded(model, batches, goal or objective("cross_entropy"))
        Trainer(**settings).fit(
            task, optimizer=adam(model), schedule=schedule.Constant(), callbacks=[watch],
            store=store, resume=resume,
        )  # fmt: skip
        return model, store, watch


def same_weights(mine, theirs, rtol=1e-4, atol=1e-5):
    for (name, p), q in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        p, q = bare(p.detach()), bare(q.detach())
        torch.testing.assert_close(p, q, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


SETTINGS = {
    "plain": {},
    "accumulate": {"accumulate": 3},
    "clip": {"clip_norm": 0.1, "clip_value": 0.05},
    "ema": {"ema": 0.9},
    "bfloat16": {"precision": "bfloat16"},
    "float16": {"precision": "float16"},
}


@pytest.mark.parametrize(
    ("decoder", "goal", "setting", "there"),
    product(choices("decoder"), RECORDED, SETTINGS, DEVICES, costly=True),
)
def test_training_with_recordings_is_training_without(decoder, goal, setting, there):
    """Reports and weights after several updates, with few recordings."""
    model, settings = tiny(decoder), {"max_epochs": 1, **SETTINGS[setting]}
    goal = objective(goal)
    plain, _, truth = fitted(model, "cpu", goal=goal, **settings)
    if hasattr(goal, "teachers"):
        goal.teachers = [copy.deepcopy(t) for t in goal.teachers]
        if there == "cuda":
            with other_device():
                for teacher in goal.teachers:
                    teacher.to("cuda")
    recorded, _, actual = fitted(model, there, goal=goal, capture=True, **settings)
    low = "precision" in settings
    for mine, theirs in zip(actual.updates, truth.updates, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=0.05 if low else 1e-4)
        assert mine.gradient_norm == pytest.approx(theirs.gradient_norm, rel=0.3 if low else 1e-2)
    if not low:
        same_weights(recorded, plain, 1e-2, 1e-3)


DROPOUT = ("model.dropout=0.3", "model.variational_dropout=true", "model.word_dropout=0.1")


@pytest.mark.parametrize("there", DEVICES)
def test_every_replay_draws_new_dropout(there):
    """One batch three times: three losses; and those of the padded batch without a recording, bit for bit. On a GPU, the
    recorded kernels round differently, because torch.compile has joined operations."""
    data = batch((4, 3), (8, 2)).padded(bucket)
    model = network("bahdanau", "concat", *DROPOUT).float()
    settings = {"batches": [data] * 3, "max_epochs": 1, "log_every": 1}
    recorded, _, actual = fitted(model, there, capture=True, **settings)
    plain, _, truth = fitted(model, there, capture=False, **settings)
    losses = [update.loss for update in actual.updates]
    assert len(set(losses)) == 3
    is_fused = HAS_GPU and there == "cuda"
    expected = [update.loss for update in truth.updates]
    assert losses == (pytest.approx(expected, rel=1e-5) if is_fused else expected)
    same_weights(recorded, plain, *((1e-3, 1e-4) if is_fused else (0, 0)))


@pytest.mark.parametrize("there", ["cpu", ON_THE_DEVICE])
def test_a_resumed_run_is_bit_identical(there):
    """With dropout, accumulation, clipping and a moving average; the interruption is inside an epoch of other shapes."""
    model = network("luong_feed", "concat", *DROPOUT).float()
    settings = {"accumulate": 2, "ema": 0.9, "clip_norm": 0.5, "capture": True}
    _, whole, _ = fitted(model, there, **settings)
    _, half, _ = fitted(model, there, max_updates=3, **settings)
    _, rest, _ = fitted(model, there, resume=bare(half.last), **settings)
    assert rest.last[0]["progress"]["update"] == whole.last[0]["progress"]["update"] == 8
    for name, truth in whole.last[1].items():
        assert torch.equal(bare(rest.last[1][name]), bare(truth)), name


@pytest.mark.parametrize("there", ["cpu", ON_THE_DEVICE])
@pytest.mark.parametrize("policy", ["stop", "skip", "rollback"])
def test_a_nan_has_the_same_result(policy, there):
    """A batch whose loss is NaN: an infinite alignment."""

    def goal(network, data, update, total):
        loss = objective("cross_entropy")(network, data, update, total)
        bad = (data.source_lengths == 7).any()
        return replace(loss, total=loss.total * torch.where(bad, torch.nan, 1.0))

    def outcome(there, capture):
        try:
            _, store, _ = fitted(
                tiny("luong"), there, goal=goal, on_nan=policy, capture=capture, max_epochs=1,
                batches=[BATCHES[0], BATCHES[2], BATCHES[1], BATCHES[3]],
            )  # fmt: skip
        except UserError as error:
            return str(error)
        progress = store.last[0]["progress"]
        return progress["update"], progress["skipped"], progress["halvings"]

    assert outcome(there, capture=True) == outcome("cpu", capture=False)


def test_beyond_the_limit_batches_run_unrecorded(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(capture, "LIMIT", 1)
    model = tiny("luong")
    recorded, _, _ = fitted(model, "cpu", capture=True)
    plain, _, _ = fitted(model, "cpu")
    same_weights(recorded, plain, 1e-2, 1e-3)
    assert caplog.text.count("run without CUDA graphs") == 1


def test_the_log_names_a_failure_once(caplog):
    """A function that reads the device on the host."""
    caplog.set_level(logging.INFO)
    with other_device():
        device = torch.device("cuda")
        recordings = Recordings(lambda x: x[x > 0], device)
        for size in (2, 3):
            assert recordings.get(torch.ones(size, device=device)) is None
    assert caplog.text.count("run without CUDA graphs") == 1
    assert "not permitted" in caplog.text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("window=hard", "window.estimator=reinforce"), "window=hard"),
        (("model.lexicon=auto",), "lexicon"),
        ((), ""),
    ],
)
def test_obstacles_are_named(options, reason):
    obstacle = network("bahdanau", "concat", *options).capture_obstacle
    assert reason in obstacle
    assert bool(obstacle) == bool(reason)


def test_a_task_with_an_obstacle_trains_without_recordings(caplog):
    caplog.set_level(logging.INFO)
    model = tiny("luong")
    Trainer(max_epochs=1, capture=True).fit(
        Known(model, [batch()]), optimizer=adam(model), schedule=schedule.Constant(), store=Store()
    )
    assert "trainer.capture: updates run without CUDA graphs" in caplog.text


@simulated
def test_one_graph_is_recorded_for_each_bucket_of_shapes():
    """By default, and no graph with capture=False or on a CPU."""
    made = []
    original = CUDAGraph.__init__

    def counted(graph):
        made.append(graph)
        original(graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CUDAGraph, "__init__", counted)
        fitted(tiny("luong"), "cuda", max_epochs=1, capture=False)
        fitted(tiny("luong"), "cpu", max_epochs=1)
        assert not made
        fitted(tiny("luong"), "cuda", max_epochs=2)
    assert len(made) == len({bucket_shape(data) for data in BATCHES})


def bucket_shape(data):
    padded = data.padded(bucket)
    return padded.source.shape, padded.targets.shape


def test_a_replay_runs_no_python_code():
    """On the device: what the function computes on the host is frozen, what it reads on the device is not."""
    calls = []

    def function(x):
        calls.append(1)
        return x * len(calls)

    with other_device():
        device = torch.device("cuda")
        recordings = Recordings(function, device)
        recording = recordings.get(torch.ones(3, device=device))
        for value in (2.0, 5.0):
            copy_into(recording.inputs, torch.full((3,), value, device=device))
            torch.testing.assert_close(bare(recording.replay()), torch.full((3,), 3 * value))
    assert len(calls) == 1 + capture.WARM_UPS


def searched(networks, data, kind, options, constraint, captured):
    """The hypotheses of a search with recorded steps, or without."""
    sources = [
        row[: n - 1].tolist() for row, n in zip(data.source, data.source_lengths, strict=True)
    ]
    requests = [
        Request(max_length=7 + 2 * i, seed=i, **CONSTRAINTS[constraint])
        for i in range(len(sources))
    ]
    with torch.inference_mode(), generating(PackedWeights("float32")):
        memories = networks.memories(sources, captured)
        step, state = networks.first_step(memories, len(sources) if captured else None)
        if constraint != "free":
            step = Constrained(step, requests)
            state = step.initial_state(state)
        return kind(**options)(step, state, requests)


PLAIN_COLUMNS = Columns()


@pytest.mark.parametrize(
    ("decoder", "search", "constraint", "option", "there"),
    product(
        choices("decoder"), SEARCHES, CONSTRAINTS, ["plain", "copy", "lstm", "local_m", "coverage", "multi_head"],
        DEVICES,
        allowed=lambda decoder, search, constraint, option, there: possible(
            decoder, search, "float32", constraint, option
        ), large=True),
)  # fmt: skip
def test_a_search_with_recordings_is_one_without(decoder, search, constraint, option, there):
    """Two searches with the same recordings, in which sentences end at different times."""
    kind, options = SEARCHES[search]
    model = tiny(decoder, option)
    batches = [batch((5, 3, 4, 2, 6), (2,) * 5), batch((7, 3, 2, 2, 3), (3,) * 5)]
    truth = [
        searched(Networks([model], PLAIN_COLUMNS), data, kind, options, constraint, captured=False)
        for data in batches
    ]
    with other_device() if there == "cuda" else contextlib.nullcontext():
        networks = Networks([copy.deepcopy(model).to(there)], PLAIN_COLUMNS, capture=True)
        assert networks.captures
        actual = [
            searched(networks, data, kind, options, constraint, captured=True) for data in batches
        ]
    for mine, theirs in zip(actual, truth, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert [h.tokens for h in a] == [h.tokens for h in b]
            assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-4)


@simulated
def test_gpu_check_needs_a_gpu(capsys, monkeypatch):
    import gpu_check

    monkeypatch.setattr("sys.argv", ["gpu_check"])
    assert gpu_check.main() == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.exhaustive
def test_gpu_check_compares_on_the_cpu(monkeypatch, tmp_path):
    """The comparison has no difference on the CPU."""
    import gpu_check

    page = tmp_path / "page.md"
    arguments = ["--device", "cpu", "--decoders", "luong", "fixed", "--size", "8", "--out", page]
    monkeypatch.setattr("sys.argv", ["gpu_check", *map(str, arguments)])
    assert gpu_check.main() == 0
    text = page.read_text()
    assert text.count("| equal |") == 2 * (2 * 2 + 5 * 2)
    assert "different" not in text


def test_gpu_check_finds_a_difference(monkeypatch):
    """A decoder whose recorded updates are wrong."""
    import gpu_check

    def wrong(recording):
        outputs = recording.function(recording.inputs)
        copy_into(recording.outputs, outputs * 1.1)
        return recording.outputs

    monkeypatch.setattr(capture.Recording, "replay", wrong)
    rows = gpu_check.compare_training(torch.device("cpu"), ["luong"], 8)
    verdicts = {(row[2], row[-1]) for row in rows if row[1] == "float32"}
    assert verdicts == {("no", "equal"), ("yes", "**different**")}


def test_a_smaller_recording_continues():
    """With half of the sentences finished, the step has half of the rows."""
    model, data = tiny("luong"), batch((5, 3, 4, 2, 6, 3, 3, 2), (2,) * 8)
    with torch.inference_mode():
        memory = model.encode(data.source, data.source_lengths)
        step = CapturedStep(StepRecordings(model), memory, torch.arange(8))
        assert step.keep(torch.tensor([0, 1, 3, 4, 7])).memory is memory
        smaller = step.keep(torch.tensor([1, 4, 6]))
        assert len(smaller.memory.mask) == 4
        assert torch.equal(smaller.mask, memory.mask[[1, 4, 6]])


@simulated
def test_only_recorded_functions_are_compiled(monkeypatch):
    compiled = []
    monkeypatch.setattr(
        fusion, "_compiled", lambda function: lambda *x: compiled.append(x) or function(*x)
    )
    doubled = fusion.fused(lambda x: 2 * x)
    with other_device():
        x = torch.ones(3, device="cuda")
        doubled(x)
        assert not compiled
        recording = Recordings(doubled, torch.device("cuda")).get(x)
        assert len(compiled) == capture.WARM_UPS + 1
        torch.testing.assert_close(bare(recording.replay()), torch.full((3,), 2.0))
    Recordings(doubled, torch.device("cpu")).get(torch.ones(3))
    assert len(compiled) == capture.WARM_UPS + 1


@simulated
def test_a_failed_compilation_is_logged_once(monkeypatch, caplog):
    """Without a C compiler, for example, the functions are recorded as they are."""
    caplog.set_level(logging.INFO)

    def failing(*x):
        raise torch._dynamo.exc.BackendCompilerFailed("inductor", OSError("no compiler"), None)

    monkeypatch.setattr(fusion, "_compiled", lambda function: failing)
    doubled = fusion.fused(lambda x: 2 * x)
    with other_device():
        recordings = Recordings(doubled, torch.device("cuda"))
        for size in (2, 3):
            x = torch.ones(size, device="cuda")
            torch.testing.assert_close(bare(recordings.get(x).replay()), torch.full((size,), 2.0))
    assert caplog.text.count("is not compiled") == 1
    assert "no compiler" in caplog.text


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_function_is_the_function():
    """Values and gradients, for two batch sizes with one compilation."""
    compiled = fusion._compiled(gru._next_state.__wrapped__)
    for rows in (4, 7):
        inputs = [torch.randn(rows, size, requires_grad=True) for size in (24, 24, 8)]
        results = [function(*inputs) for function in (compiled, gru._next_state)]
        gradients = [torch.autograd.grad(y.square().sum(), inputs) for y in results]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*gradients)
