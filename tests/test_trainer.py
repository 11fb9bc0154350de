"""The training loop: what is saved is enough, what is promised by each setting holds."""

import itertools
import json
import math
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from builders import NO_DROPOUT, SIZES, batch, choices, compose, network
from safetensors.torch import load_file, save_file

from nmt import components
from nmt.foundation.errors import Stopped, UserError
from nmt.metric import Metric
from nmt.storage import checkpoint as ckpt
from nmt.training import busy_cores, schedule
from nmt.training import optimizer as optimizers
from nmt.training.busy_cores import FewerThreads
from nmt.training.callback import Callback, Update
from nmt.training.interruption import interruptible
from nmt.training.memory import Trimming
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.objective.scheduled_sampling import ScheduledSampling
from nmt.training.progress_bar import ProgressBar
from nmt.training.run_directory import RunDirectory, claim_fresh
from nmt.training.state import TrainingState
from nmt.training.task import Task, Validation, ValidationStopped, never
from nmt.training.tracker import Tracking
from nmt.training.trainer import Trainer

RUN = [
    "experiment=reverse", "data.train=120", "data.validation=10", "data.test=10", "trainer.max_epochs=3", "seed=5",
    "encoder.hidden_size=8", "decoder.hidden_size=16", "decoder.readout_size=8", "model.embedding_size=8",
    "batching.sentences=10", "trainer.ema=0.99", "trainer.average=2", "schedule=plateau",
]  # fmt: skip


def tensors(file: Path) -> dict[str, torch.Tensor]:
    return ckpt.read(file).tensors


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_killed_at_random_and_resumed_is_bit_identical(tmp_path, fork, precision):
    """SIGKILL, three times, wherever it hits: the weights, the moving average and the optimizer end up the same."""
    extra = [f"trainer.precision={precision}", "trainer.save_every=0.0001"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    began = time.monotonic()
    assert fork("train", *RUN, *extra, f"run_dir={whole}").wait(300) == 0
    seconds = time.monotonic() - began
    command = [*RUN, *extra, f"run_dir={broken}"]
    generator = random.Random(precision)
    for _ in range(3):
        process = fork("train", *command)
        while process.poll() is None and not (broken / ckpt.LAST).exists():
            time.sleep(0.01)
        time.sleep(generator.uniform(0, 0.3 * seconds))
        process.send_signal(signal.SIGKILL)
        process.wait()
        command = [f"resume={broken}"]
    assert fork("train", *command).wait(300) == 0
    for name in (ckpt.LAST, ckpt.BEST):
        ours, truth = tensors(broken / name), tensors(whole / name)
        assert ours.keys() == truth.keys()
        assert [key for key in truth if not torch.equal(ours[key], truth[key])] == []
    updates = [
        json.loads(line).get("update")
        for line in (broken / "metrics.jsonl").read_text().splitlines()
    ]
    assert updates == sorted(updates)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_first(tmp_path, fork, number):
    folder = tmp_path / "run"
    endless = "trainer.max_epochs=500", "trainer.save_every=1000", "trainer.validate_every=400"
    process = fork("train", *RUN, *endless, f"run_dir={folder}")
    while process.poll() is None and not (folder / "metrics.jsonl").exists():
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) == 130
    errors = (tmp_path / "fork.log").read_text()
    assert f"resume={folder}" in errors
    assert "Traceback" not in errors
    assert ckpt.read(folder / ckpt.LAST).meta["training"]["progress"]["update"] > 0


class Store:
    def __init__(self):
        self.best, self.snapshots = [], {}

    def save_last(self, state, tensors):
        self.last = (
            json.loads(json.dumps(state)),
            {k: v.detach().clone() for k, v in tensors.items()},
        )

    def load_last(self):
        return self.last

    def save_best(self, state, weights):
        self.best.append((state, {k: v.detach().clone() for k, v in weights.items()}))

    def save_snapshot(self, update, weights):
        self.snapshots[update] = {k: v.detach().clone() for k, v in weights.items()}

    def average(self, updates):
        parts = [self.snapshots[u] for u in updates]
        return {k: torch.stack([p[k] for p in parts]).mean(0) for k in parts[0]}


class Watch(Callback):
    def __init__(self):
        self.updates, self.validations = [], []

    def on_update(self, update):
        self.updates.append(update)

    def on_validation(self, update, epoch, validation, best):
        self.validations.append((update, validation.metrics, best))


class Fixed(list):
    """Batches that are there already."""

    def read(self, indices):
        return (self[i] for i in indices)


class Known(Task):
    """A task on fixed batches; validation losses are read off a list (by default they fall)."""

    command, unit, metric, title = "train", "tokens", "loss", ""
    better = Metric(name="loss").better
    introduction = test = draw = next_commands = None

    def __init__(self, network, batches, losses=None):
        self.network, self.fixed = network, Fixed(batches)
        self.losses = iter(losses or [1 / n for n in range(1, 1000)])

    def objective(self, network, batch, update, total):
        return CrossEntropy()(network, batch, update)

    def batches(self, epoch):
        return self.fixed

    def validate(self, interrupted=never):
        return Validation(metrics={"loss": next(self.losses)})


def fit(trainer, model, batches, losses=None, optimizer=None, rule=None, resume=None):
    """Trains on fixed batches."""
    store, watch = Store(), Watch()
    progress = trainer.fit(
        Known(model, batches, losses),
        optimizer=optimizer or torch.optim.SGD(model.parameters(), lr=0.1),
        schedule=rule or schedule.Constant(),
        callbacks=[watch],
        store=store,
        resume=resume,
    )
    return progress, store, watch


def test_patience_stops_and_the_best_is_kept():
    progress, store, watch = fit(
        Trainer(max_epochs=50, patience=3),
        network("luong", "dot"),
        [batch()],
        [3, 2, 1, 2, 2, 2, 0],
    )
    assert len(watch.validations) == 6
    assert progress.best_update == 3
    assert [state["update"] for state, _ in store.best] == [1, 2, 3]


def test_accumulated_batches_equal_one_large_batch():
    """Gradients are averaged over tokens, not over batches."""
    parts = [batch((5, 3), (4, 6)), batch((4,), (2,))]
    width = max(p.inputs.size(1) for p in parts)
    whole = batch((5, 3, 4), (4, 6, 2))
    joined = replace(
        whole,
        source=torch.nn.utils.rnn.pad_sequence(
            [row for p in parts for row in p.source], batch_first=True
        ),
        inputs=torch.cat(
            [torch.nn.functional.pad(p.inputs, (0, width - p.inputs.size(1))) for p in parts]
        ),
        targets=torch.cat(
            [torch.nn.functional.pad(p.targets, (0, width - p.targets.size(1))) for p in parts]
        ),
    )
    models = [network("bahdanau", "concat") for _ in range(2)]
    fit(Trainer(max_epochs=1, accumulate=2), models[0], parts)
    fit(Trainer(max_epochs=1), models[1], [joined])
    for mine, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_gradient_norm_is_clipped():
    model = network("luong", "general")
    before = [p.detach().clone() for p in model.parameters()]
    fit(
        Trainer(max_epochs=1, clip_norm=0.5),
        model,
        [batch()],
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
    )
    moved = math.sqrt(
        sum(
            float((p.detach() - q).pow(2).sum())
            for p, q in zip(model.parameters(), before, strict=True)
        )
    )
    assert moved == pytest.approx(0.5, rel=1e-4)


def test_moving_average_is_what_is_kept():
    model = network("luong", "general")
    trace = []
    step = torch.optim.SGD(model.parameters(), lr=0.5)
    step.register_step_post_hook(lambda *_: trace.append(model.output.bias.detach().clone()))
    start = model.output.bias.detach().clone()
    _, store, _ = fit(Trainer(max_epochs=4, ema=0.9), model, [batch()], optimizer=step)
    average = start
    for i, weights in enumerate(trace):
        decay = min(0.9, (1 + i) / (10 + i))
        average = decay * average + (1 - decay) * weights
    torch.testing.assert_close(store.best[-1][1]["output.bias"], average)
    assert not torch.equal(trace[-1], average)


def test_average_of_the_best_snapshots_is_tried_at_the_end():
    _, store, watch = fit(
        Trainer(max_epochs=4, average=2), network("luong", "dot"), [batch()], [4, 1, 3, 2, 0.5]
    )
    state, weights = store.best[-1]
    assert state["averaged"] == [2, 4]
    torch.testing.assert_close(weights["output.bias"], (store.snapshots[2]["output.bias"] + store.snapshots[4]["output.bias"]) / 2)  # fmt: skip
    assert watch.validations[-1][2]


def test_the_highest_scores_are_averaged():
    task, scores = Known(network("luong", "dot"), [batch()]), iter([1, 4, 2, 3, 5])
    task.metric, task.better = "bleu", Metric(name="bleu").better
    task.validate = lambda *_: Validation(metrics={"bleu": next(scores), "loss": 1.0})
    store = Store()
    Trainer(max_epochs=4, average=2).fit(
        task,
        optimizer=torch.optim.SGD(task.network.parameters(), lr=0.1),
        schedule=schedule.Constant(),
        callbacks=[Watch()],
        store=store,
    )
    assert store.best[-1][0]["averaged"] == [2, 4]


def test_an_average_that_is_no_better_is_not_reported():
    _, store, watch = fit(
        Trainer(max_epochs=4, average=2), network("luong", "dot"), [batch()], [4, 1, 3, 2, 1.5]
    )
    assert [state["update"] for state, _ in store.best] == [1, 2]
    assert [update for update, _, _ in watch.validations] == [1, 2, 3, 4]


@pytest.mark.parametrize("fewer", [2, 0])
def test_fewer_snapshots_may_be_averaged_when_a_run_continues(fewer):
    model, losses = network("luong", "dot"), [4, 1, 3, 2, 5]
    _, store, _ = fit(Trainer(max_epochs=4, average=4), model, [batch()], losses)
    begun = store.last[0]["progress"] | {"averaged": False}
    resume = ({**store.last[0], "progress": begun}, store.last[1])
    progress = Trainer(max_epochs=5, average=fewer).fit(
        Known(model, [batch()], [2.5, 0.5]), optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        schedule=schedule.Constant(), store=store, resume=resume,
    )  # fmt: skip
    kept = [update for update, _ in progress.snapshots]
    assert kept == ([2, 4] if fewer else [1, 2, 3, 4])
    assert progress.best == (0.5 if fewer else 1)


def test_a_nan_loss_is_reported():
    model = network("luong", "dot")
    with torch.no_grad():
        model.output.bias[:] = math.nan
    with pytest.raises(ValueError, match=r"are NaN or infinite.*lower optimizer\.lr"):
        fit(Trainer(max_epochs=1, log_every=1), model, [batch()])


def test_skipping_every_update_ends_in_an_error():
    """The state is saved after every fourth update here."""
    model = network("luong", "dot")

    class Undefined(Known):
        def objective(self, network, batch, update, total):
            loss = CrossEntropy()(network, batch, update)
            return replace(loss, total=loss.total * math.nan)

    with pytest.raises(UserError, match="at update 10: lower"):
        Trainer(max_epochs=9, on_nan="skip").fit(
            Undefined(model, [batch()] * 4),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            schedule=schedule.Constant(),
            callbacks=[],
            store=Store(),
        )


def test_clipping_by_value_does_not_hide_an_infinite_gradient():
    model = network("luong", "dot")
    model.output.bias.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(ValueError, match="NaN or infinite"):
        fit(Trainer(max_epochs=1, log_every=1, clip_value=1.0), model, [batch()])


def test_schedules_by_hand():
    linear = schedule.LinearDecay(warmup=10, final=0.1)
    assert [linear.factor(s, 110, 0) for s in (0, 9, 10, 60, 110)] == pytest.approx(
        [0.1, 1, 1, 0.55, 0.1]
    )
    root = schedule.InverseSqrt(warmup=4)
    assert [root.factor(s, 0, 0) for s in (0, 1, 3, 15)] == pytest.approx([0.25, 0.5, 1, 0.5])
    luong = schedule.LuongHalving(start=5)
    assert [luong.factor(0, 0, e) for e in (0, 4.9, 5, 5.9, 6, 8)] == [1, 1, 0.5, 0.5, 0.25, 0.0625]
    plateau = schedule.Plateau(shrink=0.5, patience=2)
    rates = []
    for improved in (True, False, False, False, True, False, False):
        plateau.observe(improved)
        rates.append(plateau.factor(0, 0, 0))
    assert rates == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25]
    plateau.observe(False)
    resumed = schedule.Plateau(shrink=0.5, patience=2)
    resumed.load(json.loads(json.dumps(plateau.state())))
    resumed.observe(False)
    assert resumed.factor(0, 0, 0) == 0.125


@pytest.mark.parametrize("decay", ["constant", "linear", "exponential", "inverse_sigmoid"])
def test_teacher_forcing_ratio_falls_from_start_to_end(decay):
    objective = ScheduledSampling(decay=decay, start=0.9, end=0.2, updates=100)
    ratios = [objective.ratio(step) for step in range(0, 2000, 10)]
    assert ratios[0] == pytest.approx(0.9, abs=0.02)
    assert all(a >= b for a, b in itertools.pairwise(ratios))
    if decay != "constant":
        assert ratios[-1] == pytest.approx(0.2)
    if decay == "inverse_sigmoid":
        assert ScheduledSampling(decay=decay, end=0, updates=100).ratio(100) == pytest.approx(
            0.5, abs=1e-6
        )
        assert ScheduledSampling(decay=decay, end=0, pace=0.25).ratio(100, 400) == pytest.approx(
            0.5, abs=1e-6
        )
    shared = ScheduledSampling(decay=decay, start=0.9, end=0.2, pace=0.5)
    assert [shared.ratio(step, 200) for step in range(0, 2000, 10)] == ratios


@pytest.mark.parametrize("total", [30, 500, 100_000])
def test_the_usual_pace_fits_any_training(total):
    """However long a training is: half-way the ratio has reached its lower bound, and not long before."""
    objective = ScheduledSampling()
    assert objective.ratio(total // 2, total) == pytest.approx(0.5, abs=0.02)
    assert objective.ratio(total // 4, total) > 0.7


def test_schedules_are_their_formulas():
    for step in (0, 9, 99, 400):
        assert schedule.Noam(warmup=100, size=64).factor(step, 500, 0) == 64**-0.5 * min(
            (step + 1) ** -0.5, (step + 1) * 100**-1.5
        )
    cosine = schedule.Cosine(warmup=10, final=0.2)
    assert cosine.factor(10, 110, 0) == 1
    assert cosine.factor(60, 110, 0) == pytest.approx(0.6)
    assert cosine.factor(110, 110, 0) == cosine.factor(500, 110, 0) == pytest.approx(0.2)
    assert [
        schedule.StepDecay(shrink=0.5, every=2).factor(0, 0, epoch) for epoch in (0, 1.9, 2, 3.5, 4)
    ] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
    ]
    assert schedule.Exponential(shrink=0.81).factor(0, 0, 0.5) == pytest.approx(0.9)


def test_values_of_the_gradient_are_clipped():
    model, data = network("luong", "dot"), batch()
    state = TrainingState(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        schedule.Constant(),
        ema=0.0,
        scale=False,
    )
    (1e3 * CrossEntropy()(model, data, 0).total).backward()
    before = [p.grad.clone() for p in model.parameters()]
    norm = state.gradient_norm(0.0, 0.5)
    for p, g in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(p.grad, g.clamp(-0.5, 0.5))
    assert float(norm) == pytest.approx(
        float(torch.cat([g.clamp(-0.5, 0.5).flatten() for g in before]).norm())
    )


def test_a_warmup_that_is_longer_than_the_training_is_reported(caplog):
    fit(
        Trainer(max_epochs=2),
        network("luong", "dot"),
        [batch()] * 2,
        rule=schedule.Constant(warmup=3),
    )
    assert not caplog.messages
    fit(
        Trainer(max_epochs=2),
        network("luong", "dot"),
        [batch()] * 2,
        rule=schedule.Constant(warmup=4),
    )
    assert [text.split(":")[0] for text in caplog.messages] == ["schedule.warmup=4"]


class Timed(Known):
    """A task with a simulated clock: an update takes 1 s, later 2 s; a validation takes 5 s."""

    def __init__(self, monkeypatch, slower_from=50):
        super().__init__(network("luong", "dot"), [batch((2,), (2,))] * 5)
        self.now, self.slower_from = 0.0, slower_from
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def objective(self, network, batch, update, total):
        self.now += 1.0 if update < self.slower_from else 2.0
        return super().objective(network, batch, update, total)

    def validate(self, interrupted=never):
        self.now += 5.0
        return super().validate(interrupted)

    def fit(self, resume=None, is_over=False, **settings):
        settings = {"max_epochs": 1000, "validate_every": 4, "log_every": 1, **settings}
        store, watch = Store(), Watch()
        progress = Trainer(**settings).fit(
            self,
            optimizer=torch.optim.SGD(self.network.parameters(), lr=0.1),
            schedule=schedule.Cosine(warmup=5),
            callbacks=[watch],
            store=store,
            resume=resume,
            is_over=is_over,
        )
        return progress, store, watch


@pytest.mark.parametrize("budget", ["100s", 2, "3 min", "0.1h"])
def test_training_fits_into_its_time_budget(monkeypatch, budget, caplog):
    """The schedule is followed to its end, although the speed changes."""
    seconds = {"100s": 100, 2: 120, "3 min": 180, "0.1h": 360}[budget]
    caplog.set_level("INFO", "nmt")
    task = Timed(monkeypatch)
    progress, _, watch = task.fit(time_budget=budget, log_every=7)
    assert caplog.text.count(" updates at the measured speed, instead of 5,000") == 1
    assert seconds - 10 <= task.now <= seconds
    assert watch.validations[-1][0] == progress.update
    assert watch.updates[-1].rate < 0.05 * max(update.rate for update in watch.updates)


def test_a_time_budget_includes_the_time_before_a_resume(monkeypatch, caplog):
    task = Timed(monkeypatch)
    state = Store()
    with pytest.raises(Stopped):
        Trainer(max_epochs=1000, log_every=1, time_budget="100s", stop_after=8).fit(
            task,
            optimizer=torch.optim.SGD(task.network.parameters(), lr=0.1),
            schedule=schedule.Cosine(warmup=5),
            store=state,
        )
    task.now += 500  # the time between two runs does not count
    _, finished, _ = task.fit(time_budget="100s", validate_every=1, resume=state.load_last())
    assert 590 <= task.now <= 600
    before = task.now
    task.fit(time_budget="100s", validate_every=4, resume=finished.load_last(), is_over=True)
    assert task.now == before
    with caplog.at_level("WARNING", "nmt"):
        task.fit(time_budget="10s", max_epochs=2000, resume=finished.load_last())
    assert task.now == before
    assert "time_budget=10s: no time is left for further updates" in caplog.text


def test_a_time_budget_ends_between_two_reports(monkeypatch):
    task = Timed(monkeypatch)
    progress, _, watch = task.fit(time_budget="100s", log_every=5000)
    assert 90 <= task.now <= 100
    assert watch.validations[-1][0] == progress.update


@pytest.mark.parametrize("limits", [{"max_updates": 8}, {"max_epochs": 1}, {"time_budget": "5s"}])
def test_updates_before_a_lowered_limit_are_validated(monkeypatch, limits):
    """A run that was stopped after 8 updates, before its first validation."""
    state = Store()

    class Interrupt(Callback):
        def on_update(self, update):
            if update.update == 8:
                raise KeyboardInterrupt

    task = Timed(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        Trainer(max_epochs=100, validate_every=50, log_every=1, save_every=0).fit(
            task,
            optimizer=torch.optim.SGD(task.network.parameters(), lr=0.1),
            schedule=schedule.Cosine(warmup=5),
            callbacks=[Interrupt()],
            store=state,
        )
    before = state.load_last()
    done = before[0]["progress"]["update"]
    progress, _, watch = task.fit(resume=before, validate_every=50, **limits)
    assert progress.update >= done > 0
    assert [number for number, *_ in watch.validations] == [progress.update]
    assert progress.best is not None


def test_a_planned_stop_is_validated(monkeypatch):
    """sweep=halving compares the runs after each round."""
    task = Timed(monkeypatch)
    store, watch = Store(), Watch()
    with pytest.raises(Stopped):
        Trainer(max_epochs=20, validate_every=7, stop_after=2).fit(
            task,
            optimizer=torch.optim.SGD(task.network.parameters(), lr=0.1),
            schedule=schedule.Cosine(warmup=5),
            callbacks=[watch],
            store=store,
        )
    assert [number for number, *_ in watch.validations] == [10]


def test_a_report_has_all_updates_since_the_last_one(monkeypatch):
    """A validation loses no update, and its time does not count for the speed."""
    every, some = (
        Timed(monkeypatch).fit(max_epochs=4, validate_every_updates=3, log_every=count)[2]
        for count in (1, 4)
    )
    losses = [update.loss for update in every.updates]
    means = [sum(losses[i : i + 4]) / 4 for i in range(0, 20, 4)]  # batches of equal size
    assert [update.loss for update in some.updates] == pytest.approx(means)
    assert len({round(update.speed, 6) for update in [*every.updates, *some.updates]}) == 1


def test_a_large_time_budget_changes_nothing(monkeypatch):
    task = Timed(monkeypatch)
    progress, *_ = task.fit(time_budget="10h", max_epochs=6)
    assert progress.update == 30
    progress, *_ = Timed(monkeypatch).fit(time_budget="10h", max_updates=7)
    assert progress.update == 7


def test_validation_every_n_updates():
    _, _, watch = fit(
        Trainer(max_epochs=5, validate_every_updates=4),
        network("luong", "dot"),
        [batch()] * 2,
        [3] * 9,
    )
    assert [update for update, *_ in watch.validations] == [4, 8, 10]


def test_scheduled_sampling_with_ratio_one_is_teacher_forcing_and_with_zero_is_not():
    model, data = network("bahdanau", "concat").train(), batch()
    truth = CrossEntropy()(model, data, 0).total
    torch.testing.assert_close(
        ScheduledSampling(decay="constant", start=1.0)(model, data, 0).total, truth
    )
    objective = ScheduledSampling(
        decay="constant", start=0.999999999999
    )  # step by step, always the reference
    torch.testing.assert_close(objective(model, data, 0).total, truth)
    free = ScheduledSampling(decay="constant", start=0.0, end=0.0)
    assert not torch.allclose(free(model, data, 0).total, truth)
    free(model, data, 0).total.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_every_dropout_acts_in_training_only():
    for name in (
        "model.dropout",
        "model.word_dropout",
        "model.readout_dropout",
        "encoder.dropout",
        "decoder.dropout",
    ):
        off = [setting for setting in NO_DROPOUT if not setting.startswith(name + "=")]
        for variational in ("false", "true"):
            extra = [f"{name}=0.5", "encoder.num_layers=2", "decoder.num_layers=2"]
            extra += [
                f"{part}.variational_dropout={variational}"
                for part in ("model", "encoder", "decoder")
            ]
            config = compose("decoder=luong_feed", "attention=general", *SIZES, *off, *extra)
            torch.manual_seed(0)
            model, data = components.network(config, 11, 11), batch()
            losses = [
                CrossEntropy()(model.train(mode), data, 0).total.item()
                for mode in (True, True, False, False)
            ]
            assert losses[0] != losses[1], name
            assert losses[2] == losses[3], name


def test_variational_dropout_drops_the_same_features_at_every_step():
    from nmt.model.layers.dropout import Dropout

    kept = Dropout(0.5, variational=True)(torch.ones(3, 7, 50))
    assert (kept == kept[:, :1]).all()
    assert 0 < (kept == 0).float().mean() < 1


def test_dropout_drops_as_often_as_asked_and_keeps_the_mean():
    from nmt.model.layers.dropout import dropout

    torch.manual_seed(1)
    x = torch.ones(1000, 1000)
    for p in (0.1, 0.3, 0.5, 0.999):
        y = dropout(x, p)
        assert abs(float((y == 0).float().mean()) - p) < 4 * (p * (1 - p)) ** 0.5 / 1000 + 2**-16
        torch.testing.assert_close(
            y[y != 0], torch.full_like(y[y != 0], 1 / (1 - p)), rtol=0.02, atol=0
        )


@pytest.mark.parametrize("changed", ["momentum=0.9", "centered=true"])
def test_settings_of_rmsprop_may_change_on_resume(changed):
    """The buffers that the new setting needs begin at 0, as in a new training."""
    model = network("luong", "dot")

    def optimizer(*more):
        config = compose("optimizer=rmsprop", *more)
        return components.make(config, "optimizer", parameters=list(model.parameters()))

    _, begun, _ = fit(Trainer(max_epochs=0), model, [batch()], optimizer=optimizer())
    _, store, _ = fit(Trainer(max_epochs=1), model, [batch()], optimizer=optimizer())
    for state, updates in ((store.last, 2), (begun.last, 1)):
        progress, _, _ = fit(
            Trainer(max_epochs=updates), model, [batch()], optimizer=optimizer(f"optimizer.{changed}"), resume=state
        )  # fmt: skip
        assert progress.update == updates


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ("adam", "adafactor") else [pytest.mark.exhaustive])
        for name in choices("optimizer")
    ],
)
def test_every_optimizer_continues_as_if_it_had_never_stopped(name, tmp_path):
    """A checkpoint has the whole state of the optimizer: plain values and tensors, through files."""
    small = compose(f"optimizer={name}")

    def trained(epochs, resume=None):
        model = network("luong", "dot").float()  # as it is trained
        optimizer = components.make(small, "optimizer", parameters=list(model.parameters()))
        return fit(
            Trainer(max_epochs=epochs),
            model,
            [batch(), batch((4,), (2,))],
            optimizer=optimizer,
            resume=resume,
        )

    straight = trained(4)[1].last
    state, tensors = trained(2)[1].last
    save_file({k: v.contiguous() for k, v in tensors.items()}, tmp_path / "x.safetensors")
    again = trained(4, resume=(state, load_file(tmp_path / "x.safetensors")))[1].last
    assert again[1].keys() == straight[1].keys()
    assert all(torch.equal(again[1][k], straight[1][k]) for k in straight[1])


class Counting(torch.optim.SGD):
    """An optimizer as those of plugins may be: it counts in its group and in tensors of other types and shapes."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr)
        self.param_groups[0] |= {"k": 0, "betas": (0.9, 0.99)}

    def step(self, closure=None):
        group = self.param_groups[0]
        group["k"] += 1
        for p in group["params"]:
            state = self.state[p]
            state["step"] = state.get("step", torch.tensor(0)) + 1
            state["norm"] = state.get("norm", torch.tensor(0.0)) + p.grad.norm()
            p.grad.mul_(group["k"] / (state["step"] + state["norm"]))
        super().step(closure)


def test_an_optimizer_of_a_plugin_continues_with_its_counters():
    def trained(epochs, resume=None, lr=0.1):
        model = network("luong", "dot").float()
        optimizer = Counting(model.parameters(), lr)
        batches = [batch(), batch((4,), (2,))]
        store = fit(Trainer(max_epochs=epochs), model, batches, optimizer=optimizer, resume=resume)[
            1
        ]
        return store.last, optimizer.param_groups[0]

    straight, group = trained(4)
    half, _ = trained(2)
    again, same = trained(4, half)
    assert all(torch.equal(again[1][name], straight[1][name]) for name in straight[1])
    assert same["k"] == group["k"] == 8
    assert trained(4, half, lr=0.3)[1]["lr"] == 0.3  # changed in the configuration


def test_a_state_that_cannot_be_saved_is_named():
    model = network("luong", "dot").float()
    optimizer = Counting(model.parameters(), 0.1)
    optimizer.param_groups[0]["moments"] = torch.ones(2)
    with pytest.raises(UserError, match="cannot be saved .Object of type Tensor is not JSON"):
        fit(Trainer(max_epochs=1), model, [batch()], optimizer=optimizer)


@pytest.mark.parametrize("method", ["on_update", "on_validation", "on_epoch"])
def test_a_callback_may_stop_the_training(method):
    """The state is saved at the update at which the callback raised Stopped."""

    def stop(*_):
        raise Stopped

    caller = Callback()
    setattr(caller, method, stop)
    store, model = Store(), network("luong", "dot").float()
    with pytest.raises(Stopped):
        Trainer(max_epochs=4, log_every=1).fit(
            Known(model, [batch(), batch()]),
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            schedule=schedule.Constant(),
            callbacks=[caller],
            store=store,
        )
    assert store.last[0]["progress"]["update"] == (1 if method == "on_update" else 2)
    assert store.last[0]["progress"]["epoch"] == (method == "on_epoch")


@pytest.mark.parametrize(
    ("every", "places"), [(1.0, [4, 7, 11]), (0.5, [2, 4, 6, 7, 9, 11]), (2.0, [7, 11])]
)
def test_validation_follows_epochs_of_different_lengths(every, places):
    """As a mixture has: 4, 3 and 4 batches."""
    lengths = [4, 3, 4]

    class Uneven(Known):
        def batches(self, epoch):
            return Fixed([batch()] * lengths[epoch])

    model, watch = network("luong", "dot"), Watch()
    Trainer(max_epochs=3, validate_every=every).fit(
        Uneven(model, []),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        schedule=schedule.Constant(),
        store=Store(),
        callbacks=[watch],
    )
    assert [update for update, *_ in watch.validations] == places


def test_only_rank_0_calls_a_callback_unless_it_is_for_every_rank():
    class Own(Callback):
        every_rank = True

    assert not Callback.every_rank
    assert Own.every_rank
    assert Trimming.every_rank
    assert not any(kind.every_rank for kind in (ProgressBar, RunDirectory, Tracking))


def test_a_repeated_sigterm_is_the_same_stop():
    """Supervisors signal a process and its group: only a later Ctrl-C interrupts at once."""
    with interruptible() as interruption:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.requested


class Interrupted(Known):
    """Receives SIGTERM in its first validation, and checks for it between batches."""

    def validate(self, interrupted=never):
        os.kill(os.getpid(), signal.SIGTERM)
        if interrupted():
            raise ValidationStopped
        return super().validate()


def test_a_validation_that_is_interrupted_is_repeated():
    """The state is saved at once, and the resumed training equals the uninterrupted one."""
    models = [network("luong", "dot").train() for _ in range(2)]
    _, truth, watched = fit(Trainer(max_epochs=2), models[0], [batch()])
    store = Store()
    settings = {"schedule": schedule.Constant(), "store": store}
    optimizer = torch.optim.SGD(models[1].parameters(), lr=0.1)
    with pytest.raises(Stopped):
        Trainer(max_epochs=2).fit(
            Interrupted(models[1], [batch()]), optimizer=optimizer, **settings
        )
    assert store.last[0]["progress"]["validating"]
    _, resumed, watch = fit(Trainer(max_epochs=2), models[1], [batch()], resume=store.last)
    assert [update for update, _, _ in watch.validations] == [1, 2]
    assert len(watched.validations) == 2
    for name, tensor in truth.last[1].items():
        assert torch.equal(tensor, resumed.last[1][name]), name


def test_a_folder_that_cannot_be_made_is_one_message(tmp_path, monkeypatch):
    def refused(self, *_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(UserError, match="run_dir=.*cannot be written .Permission denied"):
        claim_fresh(tmp_path / "runs" / "now")


def test_fewer_threads_while_other_processes_use_the_cores(monkeypatch, caplog):
    caplog.set_level("INFO")
    before = torch.get_num_threads()
    speeds = {1: 10.0, 2: 19.0, 4: 35.0}
    monkeypatch.setattr(busy_cores, "operations_per_second", speeds.__getitem__)
    try:
        torch.set_num_threads(4)
        callback = FewerThreads()
        assert torch.get_num_threads() == 4
        speeds[4] = 18.0  # a little slower than two threads
        callback.on_validation(1, 1.0, None, True)
        assert torch.get_num_threads() == 4
        speeds[4] = 5.0
        callback.on_validation(2, 2.0, None, True)
        assert torch.get_num_threads() == 2
        assert "uses 2 of 4 threads, which is 3.8 times as fast" in caplog.text
        speeds[4] = 35.0
        callback.on_validation(3, 3.0, None, True)
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_number_of_threads_follows_the_speed_of_training(monkeypatch):
    """A slow report measures the threads again, but not twice within the pause."""
    before = torch.get_num_threads()
    speeds = {1: 10.0, 2: 19.0}
    measured = []
    monkeypatch.setattr(
        busy_cores, "operations_per_second", lambda n: (measured.append(n), speeds[n])[1]
    )
    now = [0.0]
    monkeypatch.setattr(busy_cores.time, "monotonic", lambda: now[0])

    def report(speed: float) -> int:
        now[0] += busy_cores.PAUSE - 1
        callback.on_update(Update(1, 2, 0.1, 3.0, 0.1, 1.0, speed))
        return torch.get_num_threads()

    try:
        torch.set_num_threads(2)
        callback = FewerThreads()
        assert report(1000.0) == report(990.0) == 2
        speeds[2] = 2.0
        assert report(900.0) == 2  # not slow enough to be measured
        assert len(measured) == 2
        assert report(300.0) == 1
        assert len(measured) == 4
        speeds[2] = 19.0
        assert report(400.0) == 1  # within the pause
        assert report(400.0) == 2
        assert len(measured) == 6
        torch.set_num_threads(1)
        callback = FewerThreads()
        assert report(1000.0) == report(100.0) == 1  # slow, but there are no fewer threads
        assert len(measured) == 6
    finally:
        torch.set_num_threads(before)


def test_speed_with_a_number_of_threads_is_positive(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(busy_cores, "SECONDS", 0.0)
    try:
        assert busy_cores.operations_per_second(1) >= 0
    finally:
        torch.set_num_threads(before)


def drawn_numbers(seed):
    """Random numbers that a training draws, one per batch of its two epochs."""
    numbers = []

    class Drawing(Known):
        def objective(self, network, batch, update, total):
            numbers.append(float(torch.rand(())))
            return super().objective(network, batch, update, total)

    task = Drawing(network("luong", "dot"), [batch((2,), (2,))] * 2)
    task.seed = seed
    optimizer = torch.optim.SGD(task.network.parameters(), lr=0.1)
    Trainer(max_epochs=2).fit(
        task, optimizer=optimizer, schedule=schedule.Constant(), store=Store()
    )
    return numbers


def test_each_batch_epoch_and_run_draws_its_own_numbers():
    one, same, other = drawn_numbers(1), drawn_numbers(1), drawn_numbers(2)
    assert one == same
    assert len({*one, *other}) == 8


def test_a_tie_of_the_loss_is_no_improvement():
    one = [batch((2,), (2,))]
    progress, _, _ = fit(
        Trainer(max_epochs=9, patience=2), network("luong", "dot"), one, [1, 1, 1, 0.5]
    )
    assert (progress.update, progress.best_update) == (3, 1)


def test_a_tie_of_the_metric_is_decided_by_the_loss():
    task = Known(network("luong", "dot"), [batch((2,), (2,))])
    results = iter([(5, 2.0), (5, 1.0), (5, 1.5), (4, 0.1)])
    task.metric, task.better = "bleu", Metric(name="bleu").better
    task.validate = lambda *_: Validation(
        metrics=dict(zip(("bleu", "loss"), next(results), strict=True))
    )
    store = Store()
    optimizer = torch.optim.SGD(task.network.parameters(), lr=0.1)
    Trainer(max_epochs=4).fit(task, optimizer=optimizer, schedule=schedule.Constant(), store=store)
    assert [state["update"] for state, _ in store.best] == [1, 2]


def failing(model, is_bad):
    """Makes the gradients of some backward passes NaN; the passes are counted from 1."""
    calls = itertools.count(1)
    model.output.bias.register_hook(lambda g: g * math.nan if is_bad(next(calls)) else g)
    return model


def test_every_rollback_halves_the_learning_rate():
    model, rates = failing(network("luong", "dot"), lambda call: call in (2, 3)), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: rates.append(optimizer.param_groups[0]["lr"]))
    one = [batch((2,), (2,))]
    fit(Trainer(max_epochs=3, on_nan="rollback"), model, one, optimizer=optimizer)
    assert rates == pytest.approx([0.1, 0.025, 0.025])


def test_only_consecutive_failures_end_a_training():
    one = [batch((2,), (2,))]
    model = failing(network("luong", "dot"), lambda call: call % 2)
    progress, _, _ = fit(Trainer(max_epochs=24, on_nan="skip", validate_every=24), model, one)
    assert progress.skipped == 12
    model = failing(network("luong", "dot"), lambda call: call % 2)
    progress, _, _ = fit(Trainer(max_epochs=12, on_nan="rollback"), model, one)
    assert progress.update == progress.halvings == 12


def test_the_learning_rate_falls_within_an_epoch():
    rule = schedule.Exponential(shrink=0.5)
    batches = [batch((2,), (2,))] * 4
    _, _, watch = fit(
        Trainer(max_epochs=2, log_every=1), network("luong", "dot"), batches, rule=rule
    )
    expected = [0.1 * 0.5 ** (n / 4) for n in range(8)]
    assert [update.rate for update in watch.updates] == pytest.approx(expected)


def test_the_state_is_saved_after_some_minutes(monkeypatch):
    """Every update takes a second, and 0.11 minutes are 6.6 seconds."""
    saved = set()

    class Saves(Store):
        def save_last(self, state, tensors):
            saved.add(state["progress"]["update"])

    task = Timed(monkeypatch)
    optimizer = torch.optim.SGD(task.network.parameters(), lr=0.1)
    Trainer(max_epochs=4, validate_every=4, save_every=0.11).fit(
        task, optimizer=optimizer, schedule=schedule.Constant(), store=Saves()
    )
    assert saved == {0, 7, 14, 20}


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_betas_have_their_order(name):
    weight = torch.nn.Parameter(torch.zeros(1))
    built = getattr(optimizers, name)(parameters=[weight], beta1=0.8, beta2=0.95)
    assert built.param_groups[0]["betas"] == (0.8, 0.95)
