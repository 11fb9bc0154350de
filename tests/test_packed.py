"""Products of generation against plain ones."""

import pytest
import torch
from builders import batch, network, pairs_of_choices
from torch.nn import functional as F

import nmt
from nmt.foundation.interfaces import Layout
from nmt.inference.model_step import ModelStep
from nmt.model.layers.packed import PackableLinear, PackedWeights, generating, int8_is_native

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.01, "int8": 0.02}
PRECISIONS = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "int8" and not int8_is_native(), reason="no 8-bit products"
        ),
    )
    for name in TOLERANCE
]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_packed_products_are_close_to_exact_ones(precision):
    layer, x = PackableLinear(64, 300), torch.randn(3, 7, 64)
    with torch.no_grad(), generating(PackedWeights(precision)):
        low = layer(x)
    exact = F.linear(x, layer.weight, layer.bias)
    assert (low - exact).std() / exact.std() < TOLERANCE[precision]
    assert low.dtype == torch.float32


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_does_not_depend_on_its_neighbours(precision):
    layer, x = PackableLinear(64, 300), torch.randn(5, 64)
    x[0] *= 1000
    x[1] = 0
    with torch.no_grad(), generating(PackedWeights(precision)):
        together, alone = layer(x), torch.cat([layer(row) for row in x.split(1)])
    rounding = (
        0.0 if precision == "int8" else 1e-6 * float(alone.abs().max())
    )  # sums of whole numbers are exact
    torch.testing.assert_close(together, alone, atol=rounding, rtol=0)
    torch.testing.assert_close(together[1], layer.bias)


def test_everything_that_translating_multiplies_by_is_packed(small_run, monkeypatch):
    """Encoder, keys, decoder and output layer: no product of a step takes the slow way."""
    monkeypatch.setattr(ModelStep, "search", lambda *_: None)  # no whole search in C++
    translator = nmt.load(small_run)
    translator.translate(["a b c"])
    [model] = translator.models
    owners = {owner for owner, _ in translator.networks.packed_weights.cached}
    linear = {module for module in model.modules() if isinstance(module, PackableLinear)}
    assert linear <= owners
    assert {model.decoder, model.decoder.bottom} & owners


def test_gradients_are_never_taken_through_packed_weights():
    layer = PackableLinear(4, 4)
    with generating(PackedWeights("float32")):
        layer(torch.randn(2, 4)).sum().backward()
    assert layer.weight.grad is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize(("decoder", "score"), pairs_of_choices())
def test_rows_left_out_do_not_change_the_others(decoder, score):
    """A search that computes only some of three places a sentence gets the same as one that computes all."""
    model, data = network(decoder, score), batch()
    with torch.no_grad():
        memory = model.encode(data.source, data.source_lengths)
        state = model.decoder.initial(memory).select(torch.arange(3).repeat_interleave(3))
        words = torch.arange(9).unsqueeze(1) + 2
        every = model.decode(words, state, memory)
        places = torch.tensor([0, 2, 4, 6, 7, 8])
        layout = Layout(3, places)
        some = model.decode(words[places], state.select(places), memory, layout)
    torch.testing.assert_close(some.readout, every.readout[places])
    if every.weights is not None:
        torch.testing.assert_close(some.weights, every.weights[places])
