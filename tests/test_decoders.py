"""The contract of every decoder × score × cell, and the two papers' decoders step by step from their equations."""

from dataclasses import replace

import pytest
import torch
from builders import batch, network, pairs_of_choices
from torch.nn import functional as F

from nmt.attention import average
from nmt.foundation.interfaces import BOS
from nmt.objective.cross_entropy import CrossEntropy

PAIRS = pairs_of_choices()
CELLS = ["gru", "lstm"]
every_pair = pytest.mark.parametrize(("decoder", "attention"), PAIRS)
every_cell = pytest.mark.parametrize("cell", CELLS)
every_depth = pytest.mark.parametrize("extra", [(), ("decoder.num_layers=2", "encoder.num_layers=2", "decoder.layer_norm=true", "encoder.layer_norm=true")], ids=["one", "two"])  # fmt: skip


def run(model, data, inputs=None):
    memory = model.encode(data.source, data.source_lengths)
    return model.decode(data.inputs if inputs is None else inputs, model.decoder.initial(memory), memory), memory


@every_pair
@every_cell
@every_depth
def test_all_at_once_equals_single_steps(decoder, attention, cell, extra):
    model, data = network(decoder, attention, f"cell={cell}", *extra), batch()
    whole, memory = run(model, data)
    state = model.decoder.initial(memory)
    for t in range(data.inputs.size(1)):
        step = model.decode(data.inputs[:, t : t + 1], state, memory)
        state = step.state
        torch.testing.assert_close(step.readout[:, 0], whole.readout[:, t])
        if whole.weights is not None:
            torch.testing.assert_close(step.weights[:, 0], whole.weights[:, t])
    for mine, theirs in zip(state.cells, whole.state.cells, strict=True):
        torch.testing.assert_close(mine, theirs)


@every_pair
@every_cell
def test_padding_changes_nothing(decoder, attention, cell):
    """Garbage in padded source words and memory, and more of it: same readouts."""
    model, data = network(decoder, attention, f"cell={cell}"), batch()
    truth, memory = run(model, data)
    pad = torch.arange(data.source.size(1)) >= data.source_lengths.unsqueeze(1)
    longer = F.pad(data.source.masked_fill(pad, 7), (0, 3), value=9)
    torch.testing.assert_close(run(model, replace(data, source=longer))[0].readout, truth.readout)
    dirty = {
        name: value.masked_fill(pad.unsqueeze(-1), 1e3)
        for name in ("values", "keys", "inputs")
        if (value := getattr(memory, name)) is not None
    }
    again = model.decode(data.inputs, model.decoder.initial(memory), replace(memory, **dirty))
    torch.testing.assert_close(again.readout, truth.readout)


@every_pair
def test_the_future_changes_nothing(decoder, attention):
    model, data = network(decoder, attention), batch()
    truth, _ = run(model, data)
    changed = data.inputs.clone()
    changed[:, 3:] = 8
    torch.testing.assert_close(run(model, data, changed)[0].readout[:, :3], truth.readout[:, :3])


@every_pair
def test_a_batch_equals_one_by_one(decoder, attention):
    model, data = network(decoder, attention), batch()
    together, _ = run(model, data)
    for i, length in enumerate(data.source_lengths):
        row = slice(i, i + 1)
        alone = replace(
            data,
            source=data.source[row, :length],
            source_lengths=data.source_lengths[row],
            inputs=data.inputs[row],
            targets=data.targets[row],
        )
        torch.testing.assert_close(run(model, alone)[0].readout[0], together.readout[i])


@every_pair
@every_cell
@every_depth
def test_every_parameter_learns(decoder, attention, cell, extra):
    model, data = network(decoder, attention, f"cell={cell}", *extra), batch()
    CrossEntropy(label_smoothing=0.1)(model, data, 0).total.backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not silent


@every_pair
@every_cell
def test_gradients_agree_with_finite_differences(decoder, attention, cell):
    """Along random directions of all parameters at once, in float64."""
    model, data = network(decoder, attention, f"cell={cell}", "decoder.num_layers=2"), batch()
    objective, parameters = CrossEntropy(label_smoothing=0.1), list(model.parameters())
    gradients = torch.autograd.grad(objective(model, data, 0).total, parameters)
    for seed in range(3):
        torch.manual_seed(seed)
        direction = [torch.randn_like(p) for p in parameters]
        expected = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
        losses, step = [], 1e-6
        with torch.no_grad():
            for sign in (1, -1):
                for p, d in zip(parameters, direction, strict=True):
                    p += sign * step * d
                losses.append(objective(model, data, 0).total)
                for p, d in zip(parameters, direction, strict=True):
                    p -= sign * step * d
        torch.testing.assert_close((losses[0] - losses[1]) / (2 * step), expected, rtol=1e-5, atol=1e-6)


@every_pair
def test_rows_of_a_beam_share_the_memory(decoder, attention):
    """Two rows a sentence over one memory give what two copies of it would."""
    model, data = network(decoder, attention), batch()
    memory = model.encode(data.source, data.source_lengths)
    rows = torch.arange(3).repeat_interleave(2)
    state = model.decoder.initial(memory).select(rows)
    inputs = torch.randint(4, 11, (6, 4))
    shared = model.decode(inputs, state, memory)
    copied = model.decode(inputs, state, memory.select(rows))
    torch.testing.assert_close(shared.readout, copied.readout)


def test_bahdanau_step_by_step_from_the_paper():
    """Bahdanau et al. 2015, eq. 4-6 and appendix A.2.2, with torch.nn.GRUCell as the recurrence."""
    model, data = network("bahdanau", "concat"), batch()
    output, memory = run(model, data)
    decoder, score = model.decoder, model.decoder.attention.score
    cell = torch.nn.GRUCell(14, 8).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in decoder.bottom.rnn.state_dict().items()})
    h = memory.values
    s = torch.tanh(decoder.bridge(memory.summary))
    for t in range(data.inputs.size(1)):
        y = model.target_embedding(data.inputs[:, t])
        e = (torch.tanh(score.query_layer(s)[:, None] + score.key_layer(h)) * score.v).sum(-1)
        alpha = e.masked_fill(~memory.mask, -1e30).softmax(-1)
        c = (alpha[:, :, None] * h).sum(1)
        s = cell(torch.cat([y, c], 1), s)
        maxout = decoder.readout.layer(torch.cat([s, y, c], 1)).view(3, 2, -1).amax(1)
        torch.testing.assert_close(output.readout[:, t], maxout)
        torch.testing.assert_close(output.weights[:, t], alpha)


@pytest.mark.parametrize("feed", [False, True])
def test_luong_step_by_step_from_the_paper(feed):
    """Luong et al. 2015, eq. 5-8 (general), with and without input feeding (section 3.3)."""
    model, data = network("luong_feed" if feed else "luong", "general"), batch()
    output, memory = run(model, data)
    decoder = model.decoder
    layer = (decoder.layers if feed else decoder.layers.layers)[0]
    cell = torch.nn.GRUCell(12 if feed else 6, 8).double()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.rnn.state_dict().items()})
    h = torch.tanh(decoder.bridge(memory.summary))
    attentional = torch.zeros(3, 6, dtype=torch.float64)
    for t in range(data.inputs.size(1)):
        y = model.target_embedding(data.inputs[:, t])
        h = cell(torch.cat([y, attentional], 1) if feed else y, h)
        scores = torch.einsum("bq,qm,bsm->bs", h, decoder.attention.score.key_layer.weight, memory.values)
        alpha = scores.masked_fill(~memory.mask, -1e30).softmax(-1)
        c = average(alpha[:, None], memory)[:, 0]
        attentional = torch.tanh(decoder.combine(torch.cat([c, h], 1)))
        torch.testing.assert_close(output.readout[:, t], attentional)


def test_the_encoder_reads_both_ways():
    """The first annotation knows the last word, and the last one the first."""
    model, data = network("luong", "dot"), batch((5,), (3,))
    memory = model.encode(data.source, data.source_lengths)
    for changed, seen in ((3, 0), (0, 4)):
        source = data.source.clone()
        source[0, changed] = 10 if source[0, changed] != 10 else 9
        other = model.encode(source, data.source_lengths)
        assert not torch.allclose(other.values[0, seen], memory.values[0, seen])
    assert data.inputs[0, 0] == BOS
