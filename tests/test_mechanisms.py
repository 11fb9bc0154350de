"""Windows, normalisers and the newer scores against loops written from their equations, and by finite differences."""

import itertools
import math

import contracts
import pytest
import torch
from builders import batch, choices, compose, network
from coverings import product
from torch.nn import functional as F

from nmt import components
from nmt.foundation.interfaces import Encoded
from nmt.model.attention.coverage import Coverage
from nmt.model.attention.general import General
from nmt.model.attention.layer import Attention, sums
from nmt.model.attention.multi_head import MultiHead
from nmt.model.attention.normalizer.entmax15 import Entmax15
from nmt.model.attention.normalizer.softmax import Softmax
from nmt.model.attention.normalizer.sparsemax import Sparsemax
from nmt.model.attention.uniform import Uniform
from nmt.model.attention.window.hard import Hard
from nmt.model.attention.window.local_m import LocalM
from nmt.model.attention.window.local_p import LocalP
from nmt.model.attention.window.monotonic import Monotonic, expectation
from nmt.training.objective.cross_entropy import CrossEntropy

B, T, S, SIZE = 2, 4, 5, 6
LENGTHS = (5, 3)
WINDOWS, NORMALIZERS = choices("window"), choices("normalizer")
DOUBLE = torch.float64


def built(*overrides, **sizes):
    config = compose(*overrides)
    if "size" in config["attention"]:
        config["attention"]["size"] = 5
    sizes = {"query_size": SIZE, "memory_size": SIZE, **sizes}
    window = components.make(config, "window", query_size=sizes["query_size"])
    score = components.make(config, "attention", **sizes)
    return Attention(score, window, components.make(config, "normalizer")).double().eval()


def memory_for(model, values=None):
    values = torch.randn(B, S, SIZE, dtype=DOUBLE) if values is None else values
    mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    return model.prepare(Encoded(values=values, mask=mask, final_state=values[:, 0]))


# Normalisers


def simplex_point(kind, z):
    """Sparsemax and 1.5-entmax by bisection of the threshold in their definition."""
    low, high = min(z) - 2.0, max(z)
    for _ in range(200):
        tau = (low + high) / 2
        p = [max(0.0, x - tau) if kind == "sparsemax" else max(0.0, x / 2 - tau) ** 2 for x in z]
        low, high = (tau, high) if sum(p) > 1 else (low, tau)
    return p


@pytest.mark.parametrize(
    ("kind", "normalizer"), [("sparsemax", Sparsemax()), ("entmax15", Entmax15())]
)
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_sparse_normalizers_equal_their_definition(kind, normalizer, spread):
    z = spread * torch.randn(20, 7, dtype=DOUBLE)
    z[3] = 1.0  # all equal
    for row, p in zip(z.tolist(), normalizer(z).tolist(), strict=True):
        assert p == pytest.approx(simplex_point(kind, row), abs=1e-9)
    assert normalizer(torch.tensor([[3.0, -torch.inf, 2.5]]))[0, 1] == 0
    assert torch.autograd.gradcheck(normalizer, z[4:].clone().requires_grad_())


@pytest.mark.parametrize("normalizer", [Softmax(), Sparsemax(), Entmax15()])
def test_weights_are_a_distribution_under_autocast(normalizer):
    """The scores are rounded to bfloat16, but not the sums of a normaliser."""
    model = Attention(General(query_size=SIZE, memory_size=SIZE), None, normalizer)
    values = torch.randn(B, 300, SIZE)
    memory = model.prepare(Encoded(values, torch.ones(B, 300, dtype=torch.bool), values[:, 0]))
    with torch.autocast("cpu", torch.bfloat16):
        query = model.project(torch.randn(B, T, SIZE))
        weights, _ = model.attend(query, memory, model.initial_attention_state(memory, B))
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T))


@pytest.mark.parametrize("normalizer", [Softmax(), Sparsemax(), Entmax15()])
def test_scores_that_are_nan_give_weights_that_are_nan(normalizer):
    """trainer.on_nan reacts to the loss."""
    assert normalizer(torch.full((2, 3), torch.nan)).isnan().all()


class Flat(Softmax):
    """A normaliser of a user, with the same weight at each position."""

    def __call__(self, scores):
        return super().__call__(scores.masked_fill(scores > -torch.inf, 0.0))


def test_a_normalizer_that_extends_softmax_is_not_replaced_by_softmax():
    model = Attention(General(query_size=SIZE, memory_size=SIZE), None, Flat())
    values = torch.randn(B, S, SIZE)
    memory = model.prepare(Encoded(values, torch.ones(B, S, dtype=torch.bool), values[:, 0]))
    query = model.project(torch.randn(B, T, SIZE))
    state = model.initial_attention_state(memory, B)
    weights, _, _ = model.attend_and_sum(query, memory, state)
    torch.testing.assert_close(weights, torch.full((B, T, S), 1 / S))


# Windows


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_every_window_and_normalizer_keeps_the_contract_of_weights(window, normalizer):
    choice = (f"window={window}", f"normalizer={normalizer}")
    if window == "monotonic" and normalizer != "softmax":
        with pytest.raises(ValueError, match="set normalizer=softmax"):
            contracts.run(network("luong", "general", *choice), batch())
        return
    model = network("luong", "general", *choice)
    for is_training in (False, True):
        contracts.weights_are_a_distribution(model.train(is_training), batch())


@pytest.mark.parametrize(
    ("decoder", "window", "score"),
    product(["luong", "luong_feed", "bahdanau"], WINDOWS, ["dot", "concat", "coverage"]),
)
def test_windows_in_decoders_step_by_step_and_in_beams(decoder, window, score):
    """All at once equals single steps, and padding changes nothing, whatever is remembered in between."""
    model, data = network(decoder, score, f"window={window}"), batch()
    memory = model.encode(data.source, data.source_lengths)
    whole = model.decode(data.inputs, model.decoder.initial(memory), memory)
    state = model.decoder.initial(memory).select(torch.tensor([0, 0, 1, 1, 2, 2]))
    for t in range(data.inputs.size(1)):
        step = model.decode(data.inputs[:, t : t + 1].repeat_interleave(2, 0), state, memory)
        state = step.state
        torch.testing.assert_close(step.readout[::2, 0], whole.readout[:, t])
        torch.testing.assert_close(step.weights[1::2, 0], whole.weights[:, t])
    longer = F.pad(data.source, (0, 3), value=9)
    again = model.encode(longer, data.source_lengths)
    wider = model.decode(data.inputs, model.decoder.initial(again), again)
    torch.testing.assert_close(wider.readout, whole.readout)


DIFFERENTIABLE = [w for w in WINDOWS if w != "hard"]
SCORES = [s for s in choices("attention") if s != "none"]


@pytest.mark.parametrize(
    ("window", "score"),
    [
        # By default, each score with the global window and each window with one score.
        pytest.param(
            window,
            score,
            marks=[] if window == "global" or score == "general" else [pytest.mark.exhaustive],
        )
        for window in DIFFERENTIABLE
        for score in SCORES
        if window == "global" or score not in ("uniform", "multi_head")
    ],
)
def test_gradients_of_every_combination(window, score):
    model = built(f"attention={score}", f"window={window}")
    if window == "monotonic":
        model.window.noise = False
        model.train()
    query, values = (torch.randn(B, n, SIZE, dtype=DOUBLE, requires_grad=True) for n in (T, S))

    def context(query, values, *_):
        memory = memory_for(model, values)
        state = model.initial_attention_state(memory, B)
        weights, _ = model.attend(model.project(query), memory, state)
        return sums(weights, memory.values, memory)

    inputs = (query, values, *model.parameters())
    assert torch.autograd.gradcheck(context, inputs, fast_mode=True)


def test_local_m_uses_the_neighbours_of_the_step():
    window = LocalM(query_size=SIZE, distance=1)
    scores = torch.randn(B, T, S, dtype=DOUBLE)
    scores[1, :, 3:] = -torch.inf
    carry = (torch.zeros(B, dtype=torch.long),)
    weights, after = window(scores, None, carry, Softmax())
    assert after[0].tolist() == [T, T]
    for b, t, s in itertools.product(range(B), range(T), range(S)):
        centre = min(t, LENGTHS[b] - 1)
        inside = [j for j in range(LENGTHS[b]) if abs(j - centre) <= 1]
        truth = (
            math.exp(scores[b, t, s]) / sum(math.exp(scores[b, t, j]) for j in inside)
            if s in inside
            else 0.0
        )
        assert weights[b, t, s].item() == pytest.approx(truth)


@torch.no_grad()
@pytest.mark.parametrize("normalized", [True, False])
def test_local_p_is_a_gaussian_around_the_predicted_position(normalized):
    """Luong et al. 2015, eq. 9 and 10; normalised again, or as it is."""
    distance = 3
    window = LocalP(query_size=SIZE, distance=distance, normalized=normalized).double()
    hidden, scores = torch.randn(B, T, SIZE, dtype=DOUBLE), torch.randn(B, T, S, dtype=DOUBLE)
    scores[1, :, 3:] = -torch.inf
    weights, _ = window(scores, window.query_layer(hidden), (), Softmax())
    for b, t in itertools.product(range(B), range(T)):
        inner = [math.tanh(float(row @ hidden[b, t])) for row in window.query_layer.weight]
        p = LENGTHS[b] / (
            1 + math.exp(-sum(float(v) * x for v, x in zip(window.v, inner, strict=True)))
        )
        align = [math.exp(scores[b, t, s]) for s in range(LENGTHS[b])]
        sigma = distance / 2
        truth = [
            a / sum(align) * math.exp(-((s - p) ** 2) / (2 * sigma**2))
            if abs(s - p) <= distance
            else 0.0
            for s, a in enumerate(align)
        ]
        inside = sum(a for s, a in enumerate(align) if abs(s - p) <= distance) / sum(align)
        total = sum(truth) if normalized else inside
        truth = [x / total for x in truth] + [0.0] * (S - LENGTHS[b])
        assert weights[b, t].tolist() == pytest.approx(truth, abs=1e-12)


def test_hard_attention_takes_one_position_and_passes_the_gradient_through():
    window, scores = Hard(query_size=SIZE), torch.randn(1, 1, S, dtype=DOUBLE, requires_grad=True)
    window.eval()
    weights, _ = window(scores, None, (), Softmax())
    assert weights.argmax() == scores.argmax()
    assert sorted(weights.flatten().tolist()) == [0, 0, 0, 0, 1]
    window.train()
    draws = torch.cat([window(scores, None, (), Softmax())[0] for _ in range(3000)])
    expected = scores.detach().softmax(-1).flatten()
    torch.testing.assert_close(draws.mean(0).flatten().detach(), expected, atol=0.03, rtol=0)
    reward = torch.randn(S, dtype=DOUBLE)
    (through,) = torch.autograd.grad(
        window(scores, None, (), Softmax())[0].flatten() @ reward, scores
    )
    (soft,) = torch.autograd.grad(scores.softmax(-1).flatten() @ reward, scores)
    torch.testing.assert_close(through, soft)


def test_the_first_reward_is_compared_with_the_mean_of_its_batch():
    """b is not known yet; then it is the decayed mean: Xu et al. 2015, below eq. 11."""
    window = Hard(query_size=SIZE, estimator="reinforce", reward=2.0, entropy=0.0, decay=0.5)
    log_probs = torch.randn(3, 2, dtype=DOUBLE)  # [N, T]
    state = (torch.zeros(3), log_probs, torch.zeros(3, 2))
    real = torch.tensor([[True, True], [True, False], [True, True]])
    usual = None
    for rewards in ([-1.0, -2.0, -6.0], [-4.0, -4.0, -1.0]):
        likelihood = torch.tensor(rewards, dtype=DOUBLE)
        mean = float(likelihood.mean())
        baseline = mean if usual is None else usual
        expected = -2.0 * float(((likelihood - baseline) * (log_probs * real).sum(1)).sum())
        assert float(window.reinforce_loss(state, likelihood, real)) == pytest.approx(expected)
        usual = mean if usual is None else 0.5 * usual + 0.5 * mean
    before = window.usual.clone()
    window.reinforce_loss(state, torch.full((3,), torch.nan, dtype=DOUBLE), real)  # to be skipped
    assert torch.equal(window.usual, before)


@pytest.mark.parametrize("saturated", [False, True])
def test_monotonic_expectation_is_the_sum_over_all_paths(saturated):
    """Three steps over four positions: every way to go right and stop, with its probability."""
    p = torch.rand(3, 4, dtype=DOUBLE)
    if saturated:
        p[0, 1], p[1, 2] = 1.0, 1.0
    p[:, -1] = 1.0
    truth = torch.zeros(3, 4, dtype=DOUBLE)
    for path in itertools.product(range(4), repeat=3):
        probability, before = 1.0, 0
        for t, s in enumerate(path):
            if s < before:
                probability = 0.0
                break
            probability *= math.prod(float(1 - p[t, j]) for j in range(before, s)) * float(p[t, s])
            before = s
        for t, s in enumerate(path):
            truth[t, s] += probability
    weights = torch.tensor([[1.0, 0, 0, 0]], dtype=DOUBLE)
    for t in range(3):
        weights = expectation(p[t : t + 1], weights)
        torch.testing.assert_close(weights[0], truth[t])


def test_monotonic_expectation_has_a_gradient_however_sure_it_is():
    """Forty sure decisions to stop: products of (1 − p) underflow, and their inverses overflow."""
    p = torch.full((1, 40), 1 - 1e-6, requires_grad=True)
    weights = expectation(p, F.one_hot(torch.tensor([0]), 40).float())
    (gradient,) = torch.autograd.grad(weights[0, 0], p)
    assert weights[0].tolist() == pytest.approx([1.0] + [0.0] * 39, abs=1e-5)
    assert gradient.isfinite().all()


def test_monotonic_generation_never_goes_back():
    model = built("attention=general", "window=monotonic")
    memory = memory_for(model)
    model.window.offset.data.zero_()
    query = model.project(3 * torch.randn(B, 20, SIZE, dtype=DOUBLE))
    places = model.weights(query, memory).argmax(-1)
    assert (places.diff(dim=1) >= 0).all()
    scores = model.score(query, memory.keys)
    for b in range(B):
        at = 0
        for t in range(20):
            at = next((s for s in range(at, LENGTHS[b]) if scores[b, t, s] > 0), LENGTHS[b] - 1)
            assert places[b, t] == at


def test_monotonic_training_tends_to_generation_when_decisions_are_sure():
    window = Monotonic(query_size=SIZE, noise=False).double()
    scores = 60 * torch.sign(torch.randn(1, 1, S, dtype=DOUBLE))
    start = window.initial_state(
        Encoded(
            values=torch.zeros(1, S, 2, dtype=DOUBLE),
            mask=torch.ones(1, S).bool(),
            final_state=torch.zeros(1, 2),
        ),
        1,
    )
    soft, _ = window.train()(scores, None, start, Softmax())
    hard, _ = window.eval()(scores, None, start, Softmax())
    torch.testing.assert_close(soft, hard)


# Scores


@torch.no_grad()
@pytest.mark.parametrize("name", ["location", "normed_concat", "scaled_general", "uniform"])
def test_score_equals_its_equation(name):
    model = built(f"attention={name}", *(["attention.longest=3"] if name == "location" else []))
    score, hidden, memory = model.score, torch.randn(B, T, SIZE, dtype=DOUBLE), memory_for(model)
    result = score(model.project(hidden), memory.keys)
    if hasattr(score, "scale"):
        score.scale.fill_(1.7)
        memory = memory_for(model)
        result = score(model.project(hidden), memory.keys)
    for b, t, s in itertools.product(range(B), range(T), range(S)):
        q, h = hidden[b, t], memory.values[b, s]
        if name == "location":
            truth = float(score.query_layer.weight[min(s, 2)] @ q)
        elif name == "uniform":
            truth = 0.0
        elif name == "scaled_general":
            truth = 1.7 * float(q @ score.key_layer.weight @ h)
        else:
            w, u, bias, v = (
                score.query_layer.weight,
                score.key_layer.weight,
                score.key_layer.bias,
                score.v,
            )
            length = math.sqrt(sum(float(x) ** 2 for x in v))
            truth = sum(
                1.7 * float(v[k]) / length * math.tanh(float(w[k] @ q + u[k] @ h + bias[k]))
                for k in range(5)
            )
        assert result[b, t, s].item() == pytest.approx(truth, abs=1e-10)


@torch.no_grad()
def test_coverage_equals_its_equations():
    """Tu et al. 2016, eq. 6 to 8, one step after another."""
    model = built("attention=coverage")
    score, hidden, memory = model.score, torch.randn(B, T, SIZE, dtype=DOUBLE), memory_for(model)
    result = model.weights(model.project(hidden), memory)
    for b in range(B):
        h = memory.values[b, : LENGTHS[b]]
        fertility = [2.0 / (1 + math.exp(-float(score.fertility_layer.weight[0] @ x))) for x in h]
        covered = [0.0] * LENGTHS[b]
        for t in range(T):
            energies = []
            for s in range(LENGTHS[b]):
                inner = (
                    score.query_layer.weight @ hidden[b, t]
                    + score.key_layer(h[s])
                    + score.coverage * covered[s]
                )
                energies.append(float(score.v @ torch.tanh(inner)))
            weights = torch.tensor(energies, dtype=DOUBLE).softmax(0)
            torch.testing.assert_close(result[b, t, : LENGTHS[b]], weights)
            covered = [
                c + float(a) / f for c, a, f in zip(covered, weights, fertility, strict=True)
            ]


def test_coverage_is_finite_with_a_fertility_of_zero():
    """The sigmoid of -200 is 0 in float32."""
    score = Coverage(query_size=SIZE, memory_size=1, size=5, fertility=2.0)
    torch.nn.init.constant_(score.fertility_layer.weight, -200.0)
    keys = score.keys(torch.ones(1, S, 1))
    scores = score(torch.randn(1, 1, 5), keys, torch.full((1, 1, S), 0.5))
    scores.sum().backward()
    gradients = [parameter.grad for parameter in score.parameters() if parameter.grad is not None]
    assert all(torch.isfinite(values).all() for values in (scores, *gradients))


@torch.no_grad()
def test_multi_head_equals_its_equation():
    score = MultiHead(query_size=SIZE, memory_size=4, heads=3).double()
    model = Attention(score)
    hidden, values = torch.randn(B, T, SIZE, dtype=DOUBLE), torch.randn(B, S, 4, dtype=DOUBLE)
    mask = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    memory = model.prepare(Encoded(values=values, mask=mask, final_state=values[:, 0]))
    weights, _ = model.attend(
        model.project(hidden), memory, model.initial_attention_state(memory, B)
    )
    context = sums(weights, memory.values, memory)
    for b, t in itertools.product(range(B), range(T)):
        truth = torch.zeros(4, dtype=DOUBLE)
        for i in range(3):
            part = slice(2 * i, 2 * i + 2)
            q = score.query_layer.weight[part] @ hidden[b, t]
            h = values[b, : LENGTHS[b]]
            a = torch.stack(
                [q @ score.key_layer.weight[part] @ x / math.sqrt(2) for x in h]
            ).softmax(0)
            seen = sum(w * (score.value_layer.weight[part] @ x) for w, x in zip(a, h, strict=True))
            truth += score.output_layer.weight[:, part] @ seen
        torch.testing.assert_close(context[b, t], truth)
    with pytest.raises(ValueError, match="window=global"):
        Attention(score, LocalM(query_size=SIZE))
    with pytest.raises(ValueError, match=r"attention\.heads=4 must divide"):
        MultiHead(query_size=6, memory_size=4, heads=4)


def test_uniform_attention_is_the_mean_of_the_memory():
    model = Attention(Uniform(query_size=SIZE, memory_size=SIZE))
    memory = memory_for(model)
    weights = model.weights(torch.randn(B, T, SIZE, dtype=DOUBLE), memory)
    assert weights[1, 0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0])
    assert model.by_head(weights) is None  # one head: nothing to show beside the weights


# The penalty


@torch.no_grad()
def test_doubly_stochastic_penalty():
    """Xu et al. 2015, eq. 14: λ Σ_s (1 − Σ_t α_ts)², over real words and positions."""
    model, data = network("luong", "general"), batch()
    model.train()
    plain, with_penalty = (
        CrossEntropy()(model, data, 0),
        CrossEntropy(doubly_stochastic=0.5)(model, data, 0),
    )
    memory = model.encode(data.source, data.source_lengths)
    weights = model.decode(data.inputs, model.decoder.initial(memory), memory).weights
    truth = 0.0
    for b in range(len(data.source)):
        for s in range(int(data.source_lengths[b])):
            attended = sum(
                float(weights[b, t, s])
                for t in range(data.targets.size(1))
                if data.targets[b, t] != 0
            )
            truth += 0.5 * (1 - attended) ** 2
    assert float(with_penalty.total - plain.total) == pytest.approx(truth)
    assert float(with_penalty.nll) == pytest.approx(float(plain.nll))
    model.eval()
    assert float(CrossEntropy(doubly_stochastic=0.5)(model, data, 0).total) == pytest.approx(
        float(plain.total)
    )
    with pytest.raises(ValueError, match="doubly_stochastic"):
        CrossEntropy(doubly_stochastic=0.5)(network("fixed", "none").train(), data, 0)


def test_no_attention_has_no_window():
    with pytest.raises(ValueError, match="only the defaults window=global"):
        network("fixed", "none", "window=local_m")


def test_coverage_counts_the_weights_without_the_gate():
    """A closed gate hides the context of a step, but the step has attended to its words."""
    torch.manual_seed(1)
    score = Coverage(query_size=SIZE, memory_size=SIZE, size=5, fertility=2.0)
    model = Attention(score, gate_size=SIZE).double().eval()
    memory = memory_for(model)
    query = model.project(torch.randn(B, T, SIZE, dtype=DOUBLE))
    weights, ([covered], _) = model.attend(query, memory, model.initial_attention_state(memory, B))
    torch.testing.assert_close(covered, model.mean_over_heads(weights).sum(1))
    assert (weights.sum(-1) < 0.99).any()


def test_the_noise_of_monotonic_training_is_standard_normal():
    torch.manual_seed(1)
    scores = torch.zeros(5000, 1, 2, dtype=DOUBLE)
    start = (torch.tensor([[1.0, 0.0]], dtype=DOUBLE).expand(5000, -1),)
    window = Monotonic(query_size=1, offset=0.5).double()
    weights, _ = window.train()(scores, None, start, Softmax())
    noise = torch.logit(weights[:, 0, 0]).detach()
    assert 0.45 < float(noise.mean()) < 0.55
    assert 0.95 < float(noise.std()) < 1.05
    weights, _ = window.eval()(scores, None, start, Softmax())
    assert weights[:, 0, 0].eq(1).all()
