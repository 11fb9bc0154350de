"""Extensions of the papers' networks. Every decoder with each extension keeps the decoders' contracts, and equals
its equation written as a loop."""

import dataclasses

import contracts
import pytest
import torch
from builders import batch, choices, network
from contracts import run
from torch.nn import functional as F

from nmt.foundation.interfaces import BOS, PAD, Layout
from nmt.model.layers import fused_cross_entropy
from nmt.model.layers.cells import recurrent
from nmt.model.layers.cells.gru import gru
from nmt.model.layers.cells.lstm import lstm
from nmt.model.layers.dropout import WordDropout
from nmt.model.layers.embedding import Factored, draw, embedding
from nmt.model.layers.gate_norm import GateNorm
from nmt.training.objective import scheduled_sampling
from nmt.training.objective.cross_entropy import CrossEntropy
from nmt.training.objective.scheduled_sampling import ScheduledSampling

DEEP = "encoder.num_layers=2", "decoder.num_layers=3"
EXTRAS = {
    "norm_gru": ("cell=norm_gru",),
    "norm_lstm": ("cell=norm_lstm", *DEEP),
    "deep transition": ("encoder.transition_depth=2", "decoder.transition_depth=3"),
    "deep transition, normed": (
        "encoder.transition_depth=2",
        "decoder.transition_depth=2",
        "cell=norm_gru",
    ),
    "residual": ("encoder.residual=true", "decoder.residual=true", *DEEP),
    "unidirectional": ("encoder=unidirectional", "encoder.hidden_size=4", "encoder.num_layers=2"),
    "reversed": ("encoder=reversed", "encoder.hidden_size=4"),
    "alternating": ("encoder=alternating", "encoder.hidden_size=4", "encoder.residual=true"),
    "linear bridge": ("decoder.bridge=linear", "cell=lstm"),
    "mean bridge": ("decoder.bridge=mean",),
    "last bridge": ("decoder.bridge=last", "cell=lstm"),
    "no bridge": ("decoder.bridge=none",),
    "copy": ("model.copy=true",),
    "lexical": ("model.lexical=true",),
    "lexical, copy": ("model.lexical=true", "model.copy=true"),
    "lexicon, lexical, copy": ("model.lexicon=auto", "model.lexical=true", "model.copy=true"),
    "lexicon": ("model.lexicon=auto", "model.lexicon_use=mixture"),
}


NOTHING_READ = ("fixed", EXTRAS["no bridge"])
"""The decoder that sees the source through the bridge alone, without a bridge: the encoder learns nothing."""


def possible(decoder, extra):
    options = {"model.copy=true", "model.lexical=true", "model.lexicon=auto"}
    return decoder != "fixed" or not options & {*extra}


every_extra = pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS.keys())
DECODERS = choices("decoder")
# By default, each variant with one decoder in turn.
turns = [
    pytest.param(
        decoder,
        extra,
        id=f"{decoder}-{name}",
        marks=[] if i % len(DECODERS) == k else [pytest.mark.exhaustive],
    )
    for i, (name, extra) in enumerate(EXTRAS.items())
    for k, decoder in enumerate(DECODERS)
]
every_decoder = pytest.mark.parametrize("decoder", choices("decoder"))


def score_of(decoder):
    return "none" if decoder == "fixed" else "coverage" if decoder == "conditional" else "general"


@pytest.mark.parametrize(("decoder", "extra"), turns)
def test_contracts_of_decoders(decoder, extra):
    if not possible(decoder, extra):
        with pytest.raises(
            ValueError, match=r"model\.(copy=true|lexical=true|lexicon=auto): .* no attention"
        ):
            network(decoder, score_of(decoder), *extra)
        return
    if any(f"encoder={name}" in extra for name in ("unidirectional", "reversed", "alternating")):
        extra = (*extra, "decoder.bridge=last", "decoder.hidden_size=4")
    idle = (contracts.every_parameter_learns,) if (decoder, extra) == NOTHING_READ else ()
    step = 1e-8 if any("norm" in e for e in extra) else 1e-6
    contracts.check_all(network(decoder, score_of(decoder), *extra), batch(), *idle, step=step)


def by_gate(x, norm, direction=None):
    """Ba et al. 2016, eq. 3-4, gate by gate, unit by unit."""
    gain, bias = norm.gain, norm.bias
    if direction is not None:
        gain, bias = gain[direction, 0], bias[direction, 0]
    parts = []
    for gate, g, b in zip(x.chunk(len(gain), -1), gain, bias, strict=True):
        mean = gate.mean(-1, keepdim=True)
        sigma = ((gate - mean) ** 2).mean(-1, keepdim=True).add(1e-5).sqrt()
        parts.append(g * (gate - mean) / sigma + b)
    return torch.cat(parts, -1)


@pytest.mark.parametrize("cell", ["norm_gru", "norm_lstm"])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("depth", [1, 3])
def test_layers_are_their_equations(cell, directions, depth):
    """Normalised gates and transitions, sentence by sentence and step by step."""
    layer = recurrent(cell, 5, 4, directions, depth=depth).double()
    for p in layer.parameters():
        torch.nn.init.normal_(p)
    step, lengths, x = (
        (gru if cell == "norm_gru" else lstm),
        torch.tensor([6, 2, 4]),
        torch.randn(3, 6, 5, dtype=torch.float64),
    )
    outputs, (final, *_) = layer(x, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        for way in range(directions):
            side = way if directions == 2 else None
            order = range(length - 1, -1, -1) if way else range(length)
            state = tuple(torch.zeros(4, dtype=torch.float64) for _ in range(layer.state_parts))
            extra = (
                ()
                if cell == "norm_gru"
                else (None, lambda c, side=side: by_gate(c, layer.carried_norm, side))
            )
            for t in order:
                (w, b), (v, d) = (
                    layer.weight_block("ih", direction=way),
                    layer.weight_block("hh", direction=way),
                )
                a, u = by_gate(x[row, t] @ w.t() + b, layer.input_norm, side), state[0] @ v.t() + d
                state = step(a, by_gate(u, layer.state_norm, side), state, *extra)
                for transition in layer.transitions:
                    u = by_gate(
                        state[0] @ transition.weight[way].t() + transition.bias[way],
                        transition.norm,
                        side,
                    )
                    state = step(transition.input_bias[way], u, state, *extra)
                torch.testing.assert_close(outputs[row, t, 4 * way : 4 * way + 4], state[0])
            if directions == 2:
                torch.testing.assert_close(final[row, 4 * way : 4 * way + 4], state[0])


def test_normalised_gates_forget_scale_and_shift():
    norm, x = GateNorm(3, 4).double(), torch.randn(2, 12, dtype=torch.float64)
    scaled = x.view(2, 3, 4) * torch.tensor([5.0, 0.1, 30.0]).view(3, 1) + torch.tensor(
        [1.0, -2.0, 7.0]
    ).view(3, 1)
    torch.testing.assert_close(norm(scaled.flatten(1)), norm(x), rtol=1e-2, atol=1e-2)


def test_conditional_step_by_step():
    """Sennrich et al. 2017, eq. 2-5, with torch.nn.GRUCell as both recurrences."""
    model, data = network("conditional", "concat", "decoder.transition_depth=2"), batch()
    output, memory = run(model, data)
    decoder, score = model.decoder, model.decoder.attention.score
    first, second = torch.nn.GRUCell(6, 8).double(), torch.nn.GRUCell(8, 8).double()
    for mine, theirs in ((first, decoder.before), (second, decoder.after)):
        mine.load_state_dict(
            {name.removesuffix("_l0"): value for name, value in theirs.rnn.state_dict().items()}
        )
    [transition], h = decoder.after.transitions, memory.values
    s = torch.tanh(F.linear(memory.encoded.final_state, decoder.bridge.weight, decoder.bridge.bias))
    for t in range(data.inputs.size(1)):
        y = model.target_embedding(data.inputs[:, t])
        between = first(y, s)
        e = (torch.tanh(score.query_layer(between)[:, None] + score.key_layer(h)) * score.v).sum(-1)
        alpha = e.masked_fill(~memory.mask, -1e30).softmax(-1)
        c = (alpha[:, :, None] * h).sum(1)
        s = second(c, between)
        u = s @ transition.weight[0].t() + transition.bias[0]
        [s] = gru(transition.input_bias[0].expand_as(u), u, (s,))
        torch.testing.assert_close(output.weights[:, t], alpha)
        torch.testing.assert_close(
            output.readout[:, t], torch.tanh(decoder.combine(torch.cat([s, y, c], 1)))
        )


def test_residual_layers_add_their_input():
    """With all weights of the upper layers zero they add nothing: three layers are one."""
    for decoder in choices("decoder"):
        extra = *DEEP, "decoder.residual=true", "encoder.residual=true"
        model = network(decoder, score_of(decoder), *extra)
        upper = [
            *(
                model.decoder.upper.layers
                if hasattr(model.decoder, "upper")
                else list(getattr(model.decoder.layers, "layers", model.decoder.layers))[1:]
            ),
            model.encoder.layers[1],
        ]
        with torch.no_grad():
            for layer in upper:
                for p in layer.parameters():
                    p.zero_()
            model.decoder.bridge.weight[8:] = 0
            model.decoder.bridge.bias[8:] = 0
        plain = network(decoder, score_of(decoder))
        plain.load_state_dict(
            {
                name: value[:8] if "bridge" in name else value
                for name, value in model.state_dict().items()
                if name in plain.state_dict()
            }
        )
        data, memory = batch(), model.encode(batch().source, batch().source_lengths)
        torch.testing.assert_close(
            memory.values, plain.encode(data.source, data.source_lengths).values
        )
        # the summary is the top layer's own state, so only what is the same is compared
        start = plain.decoder.bridge.states(memory.encoded.final_state)[0]
        ours, theirs = model.decoder.initial(memory), plain.decoder.initial(memory)
        torch.testing.assert_close(ours.cells[0], start)
        torch.testing.assert_close(
            model.decode(data.inputs, ours, memory).readout,
            plain.decode(data.inputs, theirs, memory).readout,
        )


@pytest.mark.parametrize("kind", ["tanh", "linear", "mean", "last", "none"])
def test_bridges_are_their_equations(kind):
    model, data = (
        network("luong", "dot", f"decoder.bridge={kind}", "decoder.num_layers=2", "cell=lstm"),
        batch(),
    )
    memory, bridge = model.encode(data.source, data.source_lengths), model.decoder.bridge
    cells = model.decoder.initial(memory).cells
    for row, length in enumerate(data.source_lengths):
        start = (
            memory.values[row, :length].mean(0)
            if kind == "mean"
            else memory.encoded.final_state[row]
        )
        for layer, parts in enumerate(cells):
            for part, value in enumerate(parts):
                rows = slice(8 * (2 * layer + part), 8 * (2 * layer + part) + 8)
                if kind in ("last", "none"):
                    truth = (
                        start
                        if kind == "last" and part == 0
                        else torch.zeros(8, dtype=torch.float64)
                    )
                else:
                    truth = bridge.weight[rows] @ start + bridge.bias[rows]
                    truth = truth if kind == "linear" else truth.tanh()
                torch.testing.assert_close(value[row], truth)


def test_context_of_unidirectional_and_alternating_encoders():
    """Unidirectional: a position depends on the words before it. Alternating: from the second layer on, on all words."""
    size = "encoder.hidden_size=8"
    for encoder, layers, ahead in (
        ("unidirectional", 2, False),
        ("alternating", 1, False),
        ("alternating", 2, True),
    ):
        model, data = (
            network("luong", "dot", f"encoder={encoder}", size, f"encoder.num_layers={layers}"),
            batch((5,), (3,)),
        )
        before = model.encode(data.source, data.source_lengths).values
        source = data.source.clone()
        source[0, 3] = 10 if source[0, 3] != 10 else 9
        after = model.encode(source, data.source_lengths).values
        assert torch.allclose(before[0, :3], after[0, :3]) != ahead
        assert not torch.allclose(before[0, 3:], after[0, 3:])


def test_reversed_encoder_reads_the_reversed_source():
    """Annotations and final state equal those of a unidirectional encoder on the reversed source, also with padding."""
    size = ("encoder.hidden_size=8", "decoder.hidden_size=8")
    reverse = network("luong", "dot", "encoder=reversed", *size)
    forward = network("luong", "dot", "encoder=unidirectional", *size)
    forward.load_state_dict(reverse.state_dict())
    source = torch.tensor([[7, 8, 9, 2], [5, 6, 2, 0]])
    backwards = torch.tensor([[2, 9, 8, 7], [2, 6, 5, 0]])
    lengths = torch.tensor([4, 3])
    read = reverse.encode(source, lengths)
    expected = forward.encode(backwards, lengths)
    torch.testing.assert_close(read.values[0], expected.values[0].flip(0))
    torch.testing.assert_close(read.values[1, :3], expected.values[1, :3].flip(0))
    torch.testing.assert_close(read.encoded.final_state, expected.encoded.final_state)


VARIATIONAL = (
    "model.dropout=0.5", "model.readout_dropout=0.5", "model.variational_dropout=true", "decoder.dropout=0.5",
    "decoder.variational_dropout=true", "decoder.recurrent_dropout=0.5", "decoder.num_layers=2",
)  # fmt: skip


@every_decoder
def test_masks_belong_to_the_sentence(decoder):
    """In training, single steps drop the same features as all steps at once: the masks are in the state."""
    model, data = network(decoder, score_of(decoder), *VARIATIONAL).train(), batch()
    memory = model.encode(data.source, data.source_lengths)
    start = model.start(memory)
    assert {"words", "readout", "between 1", "inside 0", "inside 1"} == set(start.masks)
    whole, state = model.decode(data.inputs, start, memory), start
    for t in range(data.inputs.size(1)):
        step = model.decode(data.inputs[:, t : t + 1], state, memory)
        state = step.state
        torch.testing.assert_close(step.readout[:, 0], whole.readout[:, t])
    assert not torch.allclose(
        model.decode(data.inputs, model.start(memory), memory).readout, whole.readout
    )
    readouts = whole.readout
    assert torch.equal(
        (readouts == 0).all(1), (readouts == 0).any(1)
    )  # a feature is dropped at all steps or at none
    rows = torch.tensor([2, 0])
    assert all(
        torch.equal(mask[rows], start.select(rows).masks[name])
        for name, mask in start.masks.items()
    )
    assert not model.eval().start(memory).masks


def test_scheduled_sampling_keeps_the_masks(monkeypatch):
    """Words that are sampled and are those of the reference: the loss with teacher forcing, mask for mask."""
    model, data = network("luong_feed", "general", *VARIATIONAL).train(), batch()
    words = iter(data.inputs[:, 1:].T)
    monkeypatch.setattr(scheduled_sampling, "sampled", lambda p: next(words).unsqueeze(1))
    torch.manual_seed(3)
    mixed = ScheduledSampling(decay="constant", start=0.0, end=0.0, label_smoothing=0.0)(
        model, data, 0
    )
    torch.manual_seed(3)
    torch.testing.assert_close(mixed.nll, CrossEntropy()(model, data, 0).nll)


@pytest.mark.parametrize("attention", ["concat", "general", "location"])
def test_recurrent_dropout_leaves_the_query_whole(attention):
    """The weights of the first step depend on the initial state alone, of which the recurrence drops everything here."""
    model = network("bahdanau", attention, "decoder.context_gate=true")
    one = batch()
    memory = model.encode(one.source, one.source_lengths)
    state = model.start(memory)
    dropping = dataclasses.replace(state, masks={"inside 0": torch.zeros_like(state.cells[0][0])})
    outputs = [model.decode(one.inputs[:, :1], start, memory) for start in (state, dropping)]
    torch.testing.assert_close(outputs[0].weights, outputs[1].weights)
    assert not torch.allclose(outputs[0].readout, outputs[1].readout)


@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_dropout_drops_from_products_only(directions):
    """Gal & Ghahramani 2016: u_t = W (m ∘ h_{t-1}), the same m at all steps; what the cell carries over is whole."""
    layer = recurrent("gru", 5, 4, directions, dropout=0.5).double().train()
    x, lengths = torch.randn(3, 6, 5, dtype=torch.float64), torch.tensor([6, 6, 6])
    mask = layer.mask(3) if directions == 1 else layer.mask(2, 3)
    assert set(mask.unique().tolist()) <= {0.0, 2.0}
    outputs, _ = layer(x, lengths=lengths, mask=mask)
    h = torch.zeros(3, 4, dtype=torch.float64)
    (w, b), (v, d) = layer.weight_block("ih"), layer.weight_block("hh")
    m = mask if directions == 1 else mask[0]
    for t in range(6):
        [h] = gru(x[:, t] @ w.t() + b, (m * h) @ v.t() + d, (h,))
        torch.testing.assert_close(outputs[:, t, :4], h)
    layer.eval()
    assert layer.mask(3) is None
    torch.testing.assert_close(layer(x, lengths=lengths)[0], layer(x, lengths=lengths)[0])


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_dropout_of_the_update(cell, directions):
    """Semeniuta et al. 2016, eq. 8-11, as a loop: the candidate alone is dropped, by one mask; c and h carry over whole."""
    layer = recurrent(cell, 5, 4, directions, dropout=0.5, dropout_of="update").double().train()
    x, lengths = torch.randn(3, 6, 5, dtype=torch.float64), torch.tensor([6, 6, 6])
    mask = layer.mask(3) if directions == 1 else layer.mask(2, 3)
    outputs, _ = layer(x, lengths=lengths, mask=mask)
    h = c = torch.zeros(3, 4, dtype=torch.float64)
    (w, b), (v, d) = layer.weight_block("ih"), layer.weight_block("hh")
    m = mask if directions == 1 else mask[0]
    for t in range(6):
        a, u = x[:, t] @ w.t() + b, h @ v.t() + d
        if cell == "gru":
            r, z = (torch.sigmoid(a[:, i : i + 4] + u[:, i : i + 4]) for i in (0, 4))
            n = torch.tanh(a[:, 8:] + r * u[:, 8:])
            h = (1 - z) * m * n + z * h
        else:
            i, f, o = (torch.sigmoid(a[:, k : k + 4] + u[:, k : k + 4]) for k in (0, 4, 12))
            c = f * c + i * m * torch.tanh(a[:, 8:12] + u[:, 8:12])
            h = o * torch.tanh(c)
        torch.testing.assert_close(outputs[:, t, :4], h)
    layer.eval()
    torch.testing.assert_close(
        layer(x, lengths=lengths)[0], layer(x, lengths=lengths, mask=None)[0]
    )


# Copying


def copying():
    model, data = network("bahdanau", "concat", "model.copy=true"), batch()
    with torch.no_grad():
        model.copying.gate.bias.fill_(0.1)
    return model, data


def test_copying_is_its_equation():
    """See et al. 2017, eq. 9, word by word; a distribution; the same for the rows of a beam, and in every place that asks."""
    model, data = copying()
    output, memory = run(model, data)
    result = model.output_layer.log_probs(output, memory).exp()
    g = torch.sigmoid(model.copying.gate(output.readout))
    vocabulary = model.output(output.readout).softmax(-1)
    for b in range(3):
        for t in range(output.readout.size(1)):
            truth = g[b, t] * vocabulary[b, t]
            for s, word in enumerate(data.source[b]):
                truth[word] += (1 - g[b, t, 0]) * output.weights[b, t, s]
            torch.testing.assert_close(result[b, t], truth)
    torch.testing.assert_close(result.sum(-1), torch.ones(result.shape[:2], dtype=torch.float64))
    real = data.targets != PAD
    gold = result.gather(2, data.targets.unsqueeze(2)).squeeze(2)[real].log()
    torch.testing.assert_close(
        model.output_layer.log_probs_of(output, memory, data.targets)[real], gold
    )
    torch.testing.assert_close(
        model.output_layer.loss(output, memory, data.targets, 0.0)[1], -gold.sum()
    )
    rows = torch.tensor([0, 0, 1, 2, 2])
    layout = Layout(width=2, slots=torch.tensor([0, 1, 2, 4, 5]))
    step = model.decode(data.inputs[rows, :1], model.start(memory).select(rows), memory, layout)
    torch.testing.assert_close(
        model.output_layer.log_probs(step, memory, layout)[:, 0].exp(), result[rows, 0]
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_of_copying_in_one(smoothing, monkeypatch):
    """The fused loss and all its gradients against the formula written plainly, over several slices."""
    monkeypatch.setattr(fused_cross_entropy, "SLICE", 16)

    def of(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    x, weight, bias, g, c = of(7, 4), of(5, 4), of(5), of(7), of(7)
    targets = torch.tensor([0, 4, 2, 2, 1, 3, 0])
    generated, copied = torch.sigmoid(g), torch.sigmoid(c) * (torch.arange(7) != 3)
    total, nll = fused_cross_entropy.linear_cross_entropy(
        x, weight, bias, targets, smoothing, generated, copied
    )
    log_p = (x @ weight.t() + bias).log_softmax(-1)
    gold = (generated * log_p.exp()[torch.arange(7), targets] + (1 - generated) * copied).log()
    truth = -(1 - smoothing) * gold.sum() - smoothing * log_p.mean(-1).sum()
    torch.testing.assert_close(total, truth)
    torch.testing.assert_close(nll, -gold.sum())
    leaves = x, weight, bias, g, c
    for mine, theirs in zip(
        torch.autograd.grad(3 * total, leaves, retain_graph=True),
        torch.autograd.grad(3 * truth, leaves),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


# The lexical model


def test_the_lexical_model_is_its_equation():
    """Nguyen & Chiang 2018, word by word; the loss; a beam's rows; and what a source word is, not where it stands, decides."""
    model, data = network("bahdanau", "concat", "model.lexical=true"), batch()
    output, memory = run(model, data)
    result, lexical = model.output_layer.log_probs(output, memory), model.lexical
    size = model.output.in_features
    for b in range(3):
        for t in range(data.inputs.size(1)):
            f = sum(
                output.weights[b, t, s] * model.source_embedding.weight[word]
                for s, word in enumerate(data.source[b])
            ).tanh()
            h = (lexical.hidden.weight @ f).tanh() + f
            logits = (
                model.output.weight @ output.readout[b, t, :size]
                + lexical.output.weight @ h
                + model.output.bias
            )
            torch.testing.assert_close(result[b, t], logits.log_softmax(0))
    real = data.targets != PAD
    gold = result.gather(2, data.targets.unsqueeze(2)).squeeze(2)[real]
    torch.testing.assert_close(
        model.output_layer.loss(output, memory, data.targets, 0.0)[1], -gold.sum()
    )
    rows, layout = (
        torch.tensor([0, 0, 1, 2, 2]),
        Layout(width=2, slots=torch.tensor([0, 1, 2, 4, 5])),
    )
    step = model.decode(data.inputs[rows, :1], model.start(memory).select(rows), memory, layout)
    torch.testing.assert_close(
        model.output_layer.log_probs(step, memory, layout)[:, 0], result[rows, 0]
    )


@pytest.mark.parametrize("copying", [False, True])
def test_each_word_of_the_loss_may_have_a_weight(copying, monkeypatch):
    monkeypatch.setattr(fused_cross_entropy, "SLICE", 16)

    def of(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    x, weight, bias, g, c, each = (
        of(7, 4),
        of(5, 4),
        of(5),
        of(7),
        of(7),
        torch.randn(7, dtype=torch.float64),
    )
    targets, gates = torch.tensor([0, 4, 2, 2, 1, 3, 0]), {}
    if copying:
        gates = {"generated": torch.sigmoid(g), "copied": torch.sigmoid(c)}
    result, _ = fused_cross_entropy.linear_cross_entropy(
        x, weight, bias, targets, 0.1, **gates, weights=each
    )
    truth = 0.0
    for i in range(7):
        one = {name: value[i : i + 1] for name, value in gates.items()}
        loss, _ = fused_cross_entropy.linear_cross_entropy(
            x[i : i + 1], weight, bias, targets[i : i + 1], 0.1, **one
        )
        truth = truth + each[i] * loss
    torch.testing.assert_close(result, truth)
    leaves = (x, weight, bias, g, c) if copying else (x, weight, bias)
    mine, theirs = (
        torch.autograd.grad(loss, leaves, retain_graph=True) for loss in (result, truth)
    )
    torch.testing.assert_close(mine, theirs)


def test_sampled_words_are_words_that_a_search_could_choose():
    """Scheduled sampling never feeds PAD or BOS back."""
    model, data = network("luong", "dot").train(), batch()
    with torch.no_grad():
        model.output.bias[[PAD, BOS]] = 30.0
    seen = []
    model.words.register_forward_hook(lambda module, given, result: seen.append(given[0]))
    ScheduledSampling(decay="constant", start=0.0, end=0.0)(model, data, 0)
    read = torch.cat(seen, 1)[:, 1:]
    real = data.inputs[:, 1:] != PAD
    assert not ((read == PAD) | (read == BOS))[real].any()


def test_word_dropout_drops_whole_vectors():
    dropped = WordDropout(0.5)(torch.ones(20, 30, 4))
    assert (dropped == dropped[..., :1]).all()
    assert {*dropped.unique().tolist()} == {0.0, 2.0}
    assert 0.3 < float((dropped == 0).float().mean()) < 0.7


def test_embedding_vectors_have_a_length_of_about_1_at_first():
    torch.manual_seed(1)
    table = embedding(400, 64).requires_grad_(False)
    draw(table)
    assert not table.weight[PAD].any()
    assert 0.95 < float(table.weight[PAD + 1 :].norm(dim=1).mean()) < 1.05
    [factor] = Factored(table, [400], 16).factors
    assert 0.9 < float(factor.weight.detach().norm(dim=1).mean()) < 1.05


def test_a_network_copies_little_at_first():
    """Attention is uninformative at first."""
    for overrides in (["model.copy=true"], ["model.lexicon=auto", "model.lexicon_use=mixture"]):
        copying = network("luong", "general", *overrides).copying
        nothing = torch.zeros(1, copying.gate.in_features, dtype=torch.float64)
        assert 0.85 < float(copying.generated(nothing).detach()) < 0.9
