"""The contract of every decoder × score × cell × depth, and the two papers' decoders step by step from their equations."""

import dataclasses

import contracts
import pytest
import torch
from builders import batch, choices, network
from contracts import run
from coverings import product
from torch.nn import functional as F

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS
from nmt.model.attention.layer import sums

DEEP = (
    "decoder.num_layers=2",
    "encoder.num_layers=2",
    "decoder.layer_norm=true",
    "encoder.layer_norm=true",
)


@pytest.mark.parametrize(
    ("decoder", "attention", "cell", "depth"),
    product(
        choices("decoder"),
        choices("attention"),
        ("gru", "lstm"),
        (1, 2),
        allowed=lambda decoder, attention, *_: (decoder == "fixed") == (attention == "none"),
        large=True,
    ),
)
def test_every_contract_of_decoders(decoder, attention, cell, depth):
    contracts.check_all(
        network(decoder, attention, f"cell={cell}", *(DEEP if depth == 2 else ())), batch()
    )


def test_bahdanau_step_by_step_from_the_paper():
    """Bahdanau et al. 2015, eq. 4-6 and appendix A.2.2, with torch.nn.GRUCell as the recurrence."""
    model, data = network("bahdanau", "concat"), batch()
    output, memory = run(model, data)
    decoder, score = model.decoder, model.decoder.attention.score
    cell = torch.nn.GRUCell(14, 8).double()
    cell.load_state_dict(
        {name.removesuffix("_l0"): value for name, value in decoder.bottom.rnn.state_dict().items()}
    )
    h = memory.values
    s = torch.tanh(F.linear(memory.encoded.final_state, decoder.bridge.weight, decoder.bridge.bias))
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
    """Luong et al. 2015, eq. 5-7 (general), with and without input feeding (section 3.3)."""
    model, data = network("luong_feed" if feed else "luong", "general"), batch()
    output, memory = run(model, data)
    decoder = model.decoder
    layer = (decoder.layers if feed else decoder.layers.layers)[0]
    cell = torch.nn.GRUCell(12 if feed else 6, 8).double()
    cell.load_state_dict(
        {name.removesuffix("_l0"): value for name, value in layer.rnn.state_dict().items()}
    )
    h = torch.tanh(F.linear(memory.encoded.final_state, decoder.bridge.weight, decoder.bridge.bias))
    attentional = torch.zeros(3, 6, dtype=torch.float64)
    for t in range(data.inputs.size(1)):
        y = model.target_embedding(data.inputs[:, t])
        h = cell(torch.cat([y, attentional], 1) if feed else y, h)
        scores = torch.einsum(
            "bq,qm,bsm->bs", h, decoder.attention.score.key_layer.weight, memory.values
        )
        alpha = scores.masked_fill(~memory.mask, -1e30).softmax(-1)
        c = sums(alpha[:, None], memory.values, memory)[:, 0]
        attentional = torch.tanh(decoder.combine(torch.cat([c, h], 1)))
        torch.testing.assert_close(output.readout[:, t], attentional)


def test_readouts_of_the_wrong_size_are_an_error(monkeypatch):
    """As a decoder outside nmt may return them."""
    model, data = network("luong", "general"), batch()
    forward = type(model.decoder).forward
    right = model.decoder.readout_size

    def wrong(self, *arguments):
        output = forward(self, *arguments)
        return dataclasses.replace(output, readout=output.readout[..., :-1])

    monkeypatch.setattr(type(model.decoder), "forward", wrong)
    message = rf"decoder Luong: .* readouts of shape \[.*, {right - 1}\], expected \[.*, {right}\] "
    with pytest.raises(UserError, match=message):
        run(model, data)


def test_the_encoder_reads_both_ways():
    """The first annotation depends on the last word, and the last annotation on the first word."""
    model, data = network("luong", "dot"), batch((5,), (3,))
    memory = model.encode(data.source, data.source_lengths)
    for changed, seen in ((3, 0), (0, 4)):
        source = data.source.clone()
        source[0, changed] = 10 if source[0, changed] != 10 else 9
        other = model.encode(source, data.source_lengths)
        assert not torch.allclose(other.values[0, seen], memory.values[0, seen])
    assert data.inputs[0, 0] == BOS


@pytest.mark.parametrize("layers", [1, 2])
def test_fused_products_of_input_feeding_equal_separate_ones(layers, monkeypatch):
    """One product of the top layer's state, or one for each matrix: same readouts, weights and gradients."""
    model, data = network("luong_feed", "general", f"decoder.num_layers={layers}"), batch()
    parameters = list(model.parameters())
    fused, _ = contracts.run(model, data)
    gradients = torch.autograd.grad(fused.readout.square().sum(), parameters, allow_unused=True)
    top_products = model.decoder.project_top
    kept = torch.ones(model.decoder.hidden_size)  # a mask that drops nothing prevents fusion
    monkeypatch.setattr(model.decoder, "project_top", lambda top, _: top_products(top, kept))
    separate, _ = contracts.run(model, data)
    torch.testing.assert_close(separate.readout, fused.readout)
    torch.testing.assert_close(separate.weights, fused.weights)
    again = torch.autograd.grad(separate.readout.square().sum(), parameters, allow_unused=True)
    for expected, actual in zip(gradients, again, strict=True):
        torch.testing.assert_close(actual, expected)
