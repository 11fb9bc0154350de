"""Training, search and translation on a device of their own, which the CPU plays (other_device.py).

The code for GPUs runs. No computation mixes tensors of the device and of the host, and the results are those of the CPU.
The host waits for the device only where a test allows it.
"""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import banned, batch, choices, network
from coverings import product
from other_device import (
    DEVICE,
    DeviceTensor,
    MixedDevices,
    bare,
    on_device,
    other_device,
    simulated,
)
from test_trainer import Known, Store, Watch

import nmt
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Candidate, Request, to_device
from nmt.inference.constraint import Constraint
from nmt.inference.model_step import EnsembleState, EnsembleStep, ModelStep
from nmt.model.layers.packed import PackedWeights, generating
from nmt.model.layers.recurrence import Recurrent
from nmt.search.beam import Beam
from nmt.search.constrained import Constrained
from nmt.search.diverse import Diverse
from nmt.search.greedy import Greedy
from nmt.search.mbr import MBR
from nmt.search.sample import Sample
from nmt.training import schedule
from nmt.training.gradient import AUTOCAST
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.objective.distillation import Distillation
from nmt.training.objective.minimum_risk import MinimumRisk
from nmt.training.objective.r_drop import RDrop
from nmt.training.objective.scheduled_sampling import ScheduledSampling
from nmt.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures(
    "unchecked"
)  # signatures: the tests of decoders, objectives and searches

OPTIONS = {
    "plain": (),
    "copy": ("model.copy=true", "tokenizer.joint=true"),
    "lexical": ("model.lexical=true",),
    "hard": ("window=hard", "window.estimator=reinforce"),
    "local_m": ("window=local_m",),
    "local_p": ("window=local_p",),
    "monotonic": ("window=monotonic",),
    "lstm": ("encoder.cell=lstm", "decoder.cell=lstm"),
    "norm_gru": ("encoder.cell=norm_gru", "decoder.cell=norm_gru"),
    "deep": ("encoder.num_layers=2", "decoder.num_layers=2", "decoder.transition_depth=2"),
    "reversed": ("encoder=reversed",),
    "alternating": ("encoder=alternating", "encoder.num_layers=2"),
    "coverage": ("attention=coverage",),
    "multi_head": ("attention=multi_head",),
    "sparsemax": ("normalizer=sparsemax",),
}
"""Parts of a network beside decoder and objective, by name."""
NEEDS_ATTENTION = set(OPTIONS) - {"plain", "lstm", "norm_gru", "deep", "reversed", "alternating"}


def tiny(decoder, option="plain", *more):
    """A small network in float32, without dropout."""
    attention = "none" if decoder == "fixed" else "concat"
    options = [text for text in OPTIONS[option] if not text.startswith("attention=")]
    attention = next(
        (t.partition("=")[2] for t in OPTIONS[option] if t.startswith("attention=")), attention
    )
    return network(decoder, attention, *options, *more).float()


def on_other(model):
    """A copy of a network on the other device."""
    return copy.deepcopy(model).to("cuda")


def candidates(model, data, count, source, metric):
    """Two translations of each sentence, as a search would find them on the host."""
    return [[Candidate([4, 5], 0.2), Candidate([6], 0.7)] for _ in range(len(data.source))]


def objective(name):
    """An objective with every term that costs something."""
    made = {
        "cross_entropy": lambda: CrossEntropy(label_smoothing=0.1),
        "scheduled_sampling": lambda: ScheduledSampling(decay="constant", start=0.5, end=0.5),
        "r_drop": lambda: RDrop(agreement=0.5, label_smoothing=0.1),
        "distillation": lambda: Distillation(teacher="x", teachers=[tiny("luong")]),
        "minimum_risk": lambda: MinimumRisk(candidate_generator=candidates),
    }
    assert set(made) == set(choices("objective"))
    return made[name]()


def loss_and_gradients(model, objective, data, precision, device):
    torch.manual_seed(7)
    with torch.autocast(device, AUTOCAST[precision], enabled=precision != "float32"):
        loss = objective(model.train(), data, 3, 100)
    loss.total.backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return [bare(x.detach()) for x in (loss.total, loss.nll)], bare(gradients)


def allowed(decoder, objective, precision, option):
    if decoder == "fixed" and option in NEEDS_ATTENTION:
        return False
    if option == "copy" and objective == "r_drop":
        return False
    if option == "lstm" and precision == "float16":  # not on every CPU
        return False
    return not (option == "hard" and objective == "minimum_risk")


@pytest.mark.parametrize(
    ("decoder", "objective_name", "precision", "option"),
    product(
        choices("decoder"), choices("objective"), ["float32", "bfloat16", "float16"], OPTIONS,
        allowed=allowed, large=True),
)  # fmt: skip
def test_a_training_step(decoder, objective_name, precision, option):
    """Loss and gradients are those of the CPU, without a synchronisation."""
    model, data = tiny(decoder, option), batch()
    goal = objective(objective_name)
    values, gradients = loss_and_gradients(copy.deepcopy(model), goal, data, precision, "cpu")
    with other_device() as waits:
        for teacher in getattr(goal, "teachers", ()):
            teacher.to("cuda")
        moved, there = on_other(model), to_device(data, DEVICE)
        with waits.during() as step:
            actual, moved_gradients = loss_and_gradients(moved, goal, there, precision, "cuda")
    assert not step.counts
    assert moved_gradients.keys() == gradients.keys()
    exact = precision == "float32"
    for mine, truth in zip(actual, values, strict=True):
        torch.testing.assert_close(
            mine, truth, rtol=1e-5 if exact else 0.05, atol=1e-5, equal_nan=True
        )
    if exact:
        for name, truth in gradients.items():
            torch.testing.assert_close(
                moved_gradients[name],
                truth,
                rtol=1e-4,
                atol=1e-5,
                msg=lambda m, n=name: f"{n}: {m}",
            )


SETTINGS = {
    "plain": {},
    "accumulate": {"accumulate": 2},
    "clip": {"clip_norm": 0.1, "clip_value": 0.05},
    "ema": {"ema": 0.9},
    "rollback": {"on_nan": "rollback"},
}


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01, fused=True)


class Counted(Known):
    """A task whose updates note the synchronisations so far."""

    def __init__(self, network, batches, waits=None):
        super().__init__(network, batches)
        self.waits, self.seen = waits, []

    def objective(self, network, batch, update, total):
        if self.waits is not None:
            self.seen.append(self.waits.total)
        return super().objective(network, batch, update, total)


def fitted(trainer, model, batches, waits=None):
    task, store, watch = Counted(model, batches, waits), Store(), Watch()
    trainer.fit(
        task, optimizer=adam(model), schedule=schedule.Constant(), callbacks=[watch], store=store
    )
    return task, store, watch


@pytest.mark.parametrize(
    ("decoder", "precision", "setting"),
    product(choices("decoder"), ["float32", "bfloat16", "float16"], SETTINGS, costly=True),
)
def test_updates_do_not_wait(decoder, precision, setting):
    """Six updates of the trainer with one report: the host never waits between them; with float32, the reports and the
    weights are those of the CPU."""
    trainer = Trainer(
        max_epochs=1, log_every=6, precision=precision, validate_every=2.0, **SETTINGS[setting]
    )
    batches = [batch(), batch((2, 7), (3, 5))] * 3 * SETTINGS[setting].get("accumulate", 1)
    model = tiny(decoder)
    here = copy.deepcopy(model)
    _, _, truth = fitted(trainer, here, batches)
    with other_device() as waits:
        there = on_other(model)
        task, _, watch = fitted(trainer, there, batches, waits)
    assert len(set(task.seen)) == 1, waits.counts
    assert len(watch.updates) == len(truth.updates) == 1
    if precision == "float32":
        mine, report = watch.updates[0], truth.updates[0]
        assert mine.loss == pytest.approx(report.loss, rel=1e-4)
        assert mine.gradient_norm == pytest.approx(report.gradient_norm, rel=1e-3)
        for p, q in zip(there.parameters(), here.parameters(), strict=True):
            torch.testing.assert_close(bare(p.detach()), q.detach(), rtol=1e-3, atol=1e-4)


class Failing(Counted):
    """The loss of one call of the objective is NaN."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.calls = 0

    def objective(self, network, batch, update, total):
        loss = super().objective(network, batch, update, total)
        self.calls += 1
        if self.calls == 3:
            loss = replace(loss, total=loss.total * torch.nan)
        return loss


@pytest.mark.parametrize("policy", ["stop", "skip", "rollback"])
def test_a_nan_has_the_same_result(policy):
    """The consequences of a NaN do not depend on when the host reads it."""
    trainer = Trainer(max_epochs=1, log_every=4, on_nan=policy)
    batches = [batch(), batch((2, 7), (3, 5))] * 4
    model = tiny("luong")

    def run(network):
        store = Store()
        try:
            progress = trainer.fit(
                Failing(network, batches), optimizer=adam(network), schedule=schedule.Constant(),
                store=store,
            )  # fmt: skip
        except UserError as error:
            return str(error), store
        return (progress.update, progress.skipped, progress.halvings), store

    outcome, store = run(copy.deepcopy(model))
    with other_device():
        moved_outcome, moved_store = run(on_other(model))
    assert moved_outcome == outcome
    for name, truth in store.last[1].items():
        mine = bare(moved_store.last[1][name])
        torch.testing.assert_close(mine, truth, rtol=1e-3, atol=1e-4, msg=name)


SEARCHES = {
    "greedy": (Greedy, {}),
    "beam": (Beam, {"width": 3, "n_best": 2}),
    "beam with coverage": (Beam, {"width": 3, "coverage": 0.3}),
    "diverse": (Diverse, {"width": 4, "groups": 2}),
    "sample": (Sample, {"n_best": 3}),
    "sample of the likely": (Sample, {"n_best": 2, "top_k": 5, "top_p": 0.9}),
    "mbr": (MBR, {"candidates": 4}),
}
CONSTRAINTS = {
    "free": {},
    "prefix": {"spellings": ({5: 1}, {6: 2})},
    "forbidden": {"forbidden": banned((4,), (7, 8))},
    "unrepeated": {"no_repeat_ngram_size": 2},
    "required": {"required": ((9,), (5, 7)), "continuing": frozenset({8})},
}


class Counting:
    """Counts the steps of a search."""

    def __init__(self, step):
        self.step, self.calls = step, [0]
        self.device, self.mask = step.device, step.mask

    def __call__(self, *arguments):
        self.calls[0] += 1
        return self.step(*arguments)

    def keep(self, sentences):
        kept = Counting(self.step.keep(sentences))
        kept.calls = self.calls
        return kept


def searched(model, data, kind, options, constraint, precision):
    """The hypotheses of a search, and its number of steps."""
    requests = [
        Request(max_length=7 + i, seed=i, **CONSTRAINTS[constraint])
        for i in range(len(data.source))
    ]
    with torch.inference_mode(), generating(PackedWeights(precision)):
        memory = model.encode(data.source, data.source_lengths)
        step, state = Counting(ModelStep(model, memory)), model.start(memory)
        calls = step.calls
        if constraint != "free":
            step = Constrained(step, requests)
            state = step.initial_state(state)
        return kind(**options)(step, state, requests), calls[0]


def possible(decoder, search, precision, constraint, option):
    if constraint == "required" and not search.startswith("beam"):
        return False
    attends = search == "beam with coverage" or option in NEEDS_ATTENTION
    return decoder != "fixed" or not attends


@pytest.mark.parametrize(
    ("decoder", "search", "precision", "constraint", "option"),
    product(
        choices("decoder"), SEARCHES, ["float32", "bfloat16"], CONSTRAINTS,
        ["plain", "copy", "lexical", "hard", "local_m", "lstm", "coverage"],
        allowed=possible, large=True),
)  # fmt: skip
def test_a_search(decoder, search, precision, constraint, option):
    """The hypotheses are those of the CPU, and the host waits once per step. Required words are allocated to beam slots on
    the host, before the coverage of the hypotheses is read: the host waits twice."""
    assert {name.split()[0] for name in SEARCHES} == set(choices("search"))
    kind, options = SEARCHES[search]
    model, data = tiny(decoder, option), batch((5, 3, 4, 2), (4, 6, 2, 2))
    truth, _ = searched(model, data, kind, options, constraint, precision)
    with other_device() as waits:
        moved, there = on_other(model), to_device(data, DEVICE)
        with waits.during() as search_waits:
            actual, steps = searched(moved, there, kind, options, constraint, precision)
    waits_per_step = 2 if search == "beam with coverage" and constraint == "required" else 1
    assert search_waits.total <= waits_per_step * steps, search_waits.counts
    if precision == "float32":
        for mine, theirs in zip(actual, truth, strict=True):
            assert [h.tokens for h in mine] == [h.tokens for h in theirs]
            assert [h.score for h in mine] == pytest.approx([h.score for h in theirs], abs=1e-4)


@pytest.mark.parametrize("decoder", choices("decoder"))
def test_greedy_search_waits_once_in_four_steps(decoder):
    """Sentences end at different steps of a stride; the tokens are those of the CPU."""
    model, data = tiny(decoder), batch((5, 3, 4, 2), (4, 6, 2, 2))
    requests = [Request(max_length=limit) for limit in (0, 6, 9, 17)]

    def search(network, data):
        with torch.inference_mode():
            memory = network.encode(data.source, data.source_lengths)
            return Greedy()(ModelStep(network, memory), network.start(memory), requests)

    truth = search(model, data)
    with other_device() as waits:
        moved, there = on_other(model), to_device(data, DEVICE)
        with waits.during() as search_waits:
            actual = search(moved, there)
    assert [hs[0].tokens for hs in actual] == [hs[0].tokens for hs in truth]
    scores = [hs[0].score for hs in truth]
    assert [hs[0].score for hs in actual] == pytest.approx(scores, abs=1e-4)
    longest = max(len(hs[0].tokens) for hs in truth) + 1
    assert search_waits.total <= -(-longest // 4), search_waits.counts


def test_a_search_with_an_ensemble():
    models, data = [tiny("luong"), tiny("bahdanau")], batch()
    requests = [Request(max_length=6)] * 3

    def search(members, data):
        with torch.inference_mode():
            memories = [m.encode(data.source, data.source_lengths) for m in members]
            steps = [ModelStep(m, memory) for m, memory in zip(members, memories, strict=True)]
            states = [m.start(memory) for m, memory in zip(members, memories, strict=True)]
            step = EnsembleStep(steps, [0.5, 0.5], "probability")
            return Beam(width=3)(step, EnsembleState(tuple(states)), requests)

    truth = search(models, data)
    with other_device():
        actual = search([on_other(m) for m in models], to_device(data, DEVICE))
    assert [[h.tokens for h in hs] for hs in actual] == [[h.tokens for h in hs] for hs in truth]


@pytest.mark.parametrize(
    ("precision", "capture"), product(["float32", "bfloat16"], [True, False], large=True)
)
def test_batches_of_the_server(small_run, precision, capture):
    """Translations with all details, of requests with and without constraints, by a model loaded on the device."""
    lines = (small_run / "test.source.txt").read_text(encoding="utf-8").splitlines()[:6]
    constraints = [Constraint(prefix=line.split()[0]) for line in lines]

    def answers(device, capture):
        translator = nmt.load(small_run, device=device, precision=precision, capture=capture)
        beam = translator.with_search(Beam(width=4)).with_whole_beam()
        free = beam.translations(lines, details_of=2)
        return [*free, *translator.translations(lines, constraints, details_of=1)]

    truth = answers("cpu", False)
    with other_device():
        actual = answers("cuda", capture)
    for mine, theirs in zip(actual, truth, strict=True):
        assert len(mine.details) == len(theirs.details)
        if precision == "float32":
            assert mine.texts == theirs.texts
            for a, b in zip(mine.details, theirs.details, strict=True):
                np.testing.assert_allclose(a.log_probs, b.log_probs, atol=1e-4)
                np.testing.assert_allclose(a.weights, b.weights, atol=1e-4)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("directions", [1, 2])
def test_sentences_are_read_as_if_packed(cell, directions):
    """Without packing, outputs, last states and gradients are those of PyTorch's layer on packed sentences."""
    from nmt.model.layers.cells import recurrent

    layer: Recurrent = recurrent(cell, 5, 4, directions)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 2, 4])
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        x, lengths, batch_first=True, enforce_sorted=False
    )
    result, last = layer.rnn(packed)
    truth, _ = torch.nn.utils.rnn.pad_packed_sequence(result, batch_first=True, total_length=6)
    h = (last[0] if cell == "lstm" else last).transpose(0, 1).flatten(1)
    (truth.square().sum() + h.square().sum()).backward()
    gradients = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    real = (torch.arange(6) < lengths.unsqueeze(1)).unsqueeze(-1)
    with other_device() as waits:
        moved, there = on_other(layer), on_device(x)
        with waits.during() as step:
            y, (final, *_) = moved(there, lengths=on_device(lengths))
            ((y * on_device(real)).square().sum() + final.square().sum()).backward()
    assert not step.counts
    torch.testing.assert_close(bare(y.detach()) * real, truth.detach())
    torch.testing.assert_close(bare(final.detach()), h.detach())
    for p, truth_gradient in zip(moved.parameters(), gradients, strict=True):
        torch.testing.assert_close(bare(p.grad), truth_gradient, rtol=1e-4, atol=1e-5)


FAULTS = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 0).any()),
    "tolist": lambda x: x.tolist(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "assignment by a mask": lambda x: x.clone().__setitem__(x > 0, x[:1].expand(2)),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu"),
    "copy": lambda x: torch.empty(3).copy_(x),
    "equal": lambda x: torch.equal(x, x),
    "pageable": lambda x: torch.ones(3).to(x.device, non_blocking=True),
    "blocking": lambda x: torch.ones(3).pin_memory().to(x.device),
    "assignment of a number": lambda x: x.__setitem__(0, 1.0),
    "tensor of values": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "new tensor of values": lambda x: x.new_tensor([1.0, 2.0]),
    "packed sequence": lambda x: torch.nn.utils.rnn.pack_padded_sequence(
        x.view(1, 3, 1), (x > 0).sum().view(1).cpu(), batch_first=True
    ),
}
"""Code that waits for the device."""


@simulated
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wait_is_counted(fault):
    with other_device() as waits:
        x = DeviceTensor(torch.tensor([0.5, -1.0, 2.0]))
        FAULTS[fault](x)
    assert waits.total >= 1


MIXTURES = {
    "sum": lambda x: x + torch.ones(3),
    "index": lambda x: x[torch.tensor([0, 1])],
    "list as index": lambda x: x[[0, 1]],
    "product": lambda x: torch.ones(2, 3) @ x,
    "in place": lambda x: torch.ones(3).add_(x),
    "numpy": lambda x: x.numpy(),
}


@simulated
@pytest.mark.parametrize("mixture", MIXTURES)
def test_a_mixture_is_an_error(mixture):
    with other_device(), pytest.raises((MixedDevices, TypeError)):
        MIXTURES[mixture](DeviceTensor(torch.tensor([0.5, -1.0, 2.0])))


@simulated
def test_what_is_allowed_is_not_counted():
    with other_device() as waits:
        x = DeviceTensor(torch.tensor([0.5, -1.0, 2.0]))
        there = torch.ones(3).pin_memory().to(x.device, non_blocking=True)
        y = torch.where(x > 0, x, torch.zeros(3, device="cuda")) + there * 2
        y[x > 0] = 0.0  # a fill, as PyTorch computes it
        y.masked_fill_(x > 0, 1.0).gather(0, y.argmax().view(1))
        assert y.device.type == "cuda"
        assert not y.is_cpu
    assert not waits.counts


@simulated
@pytest.mark.parametrize("kind", ["wait", "mixture"])
def test_a_fault_in_the_network_is_found(kind, monkeypatch):
    """A fault planted in an encoder: the tests above would fail."""
    from nmt.model.encoder.rnn_encoder import RNNEncoder

    whole = RNNEncoder.encode

    def faulty(self, x, lengths):
        if kind == "wait":
            assert int(lengths.max()) <= x.size(1)
        else:
            x = x * (torch.arange(x.size(1)) >= 0).unsqueeze(-1)
        return whole(self, x, lengths)

    monkeypatch.setattr(RNNEncoder, "encode", faulty)
    with pytest.raises(AssertionError if kind == "wait" else MixedDevices):
        test_a_training_step("bahdanau", "cross_entropy", "float32", "plain")
