"""Steps of a search in C++ against their references in PyTorch, and whole translations with and without them."""

from collections import Counter
from itertools import chain

import pytest
import torch
from builders import batch, network, pairs_of_choices
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.foundation.interfaces import BOS, EOS, PAD, Request
from nmt.inference import whole_search
from nmt.inference.model_step import ModelStep
from nmt.inference.networks import Networks
from nmt.inference.whole_search import computes
from nmt.model.layers import packed
from nmt.model.layers.cells.gru import GRU
from nmt.model.layers.numeric import tanh
from nmt.model.layers.packed import PackedWeights, generating
from nmt.model.native import native_decoding
from nmt.model.native.kernel_library import library
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.tokenizer.columns import Columns

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")
DECODERS = ["bahdanau", "conditional", "luong", "luong_feed"]
"""Decoders whose searches run in C++."""
CLOSE = {"atol": 2e-6, "rtol": 2e-6}


@pytest.fixture(autouse=True)
def _without_gradients():
    torch.manual_seed(1)
    with torch.no_grad():
        yield


def test_functions_of_single_numbers():
    x = torch.cat([torch.linspace(-100, 100, 4001), torch.linspace(-1e-3, 1e-3, 101)])
    torch.testing.assert_close(native_decoding.tanh(x), torch.tanh(x), **CLOSE)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_both_directions_of_the_encoder(precision):
    if native_decoding.matrix_product(precision) is None:
        pytest.skip("no product")
    layer = GRU(5, 7, directions=2)
    x, lengths = torch.randn(3, 6, 5), torch.tensor([6, 1, 4])
    outputs, (last,) = layer(x, lengths=lengths)
    with generating(PackedWeights(precision)):
        fast, (fast_last,) = layer(x, lengths=lengths)
    atol = {"float32": 2e-6, "bfloat16": 0.02, "int8": 0.03}[precision]
    torch.testing.assert_close(fast_last, last, atol=atol, rtol=0)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(fast[row, :length], outputs[row, :length], atol=atol, rtol=0)


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("size", [3, 64, 100])
def test_attention_and_its_sum(size, additive):
    """Rows of any sentences in any number; padding gets exactly 0, whatever it contains."""
    mask = torch.arange(6) < torch.tensor([6, 2, 1]).unsqueeze(1)
    keys, values = torch.randn(3, 6, size), torch.randn(3, 6, size + 1)
    keys[~mask], values[~mask] = torch.inf, torch.inf
    sentences = torch.tensor([0, 0, 2, 1, 0])
    queries, v = torch.randn(len(sentences), size), torch.randn(size)
    weights = native_decoding.attention(queries, keys, mask, sentences, v if additive else None)
    sums = native_decoding.weighted_sum(weights, values, sentences)
    for row, sentence in enumerate(sentences.tolist()):
        real = int(mask[sentence].sum())
        k = keys[sentence, :real]
        scores = torch.tanh(queries[row] + k / 2) @ v if additive else k @ queries[row]
        expected = scores.softmax(0)
        torch.testing.assert_close(weights[row, :real], expected, atol=1e-5, rtol=1e-5)
        assert (weights[row, real:] == 0).all()
        expected_sum = expected @ values[sentence, :real]
        torch.testing.assert_close(sums[row], expected_sum, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("vocabulary", [5, 64, 65, 1000])
def test_the_best_words_of_each_row(vocabulary, count):
    logits = 5 * torch.randn(20, vocabulary)
    logits[:5, [PAD, BOS]] = 50  # the most probable words, if they counted
    best, best_words, ends = native_decoding.best(logits, count, EOS)
    log_probs = logits.log_softmax(-1)
    torch.testing.assert_close(ends, log_probs[:, EOS], atol=1e-5, rtol=1e-5)
    log_probs[:, [PAD, BOS]] = -torch.inf
    values, words = log_probs.topk(count, -1)
    real = values > -torch.inf
    torch.testing.assert_close(best, values, atol=1e-5, rtol=1e-5)
    assert torch.equal(best_words[real], words[real])


def test_rows_in_8_bits():
    x = torch.randn(4, 100)
    x[1], x[2] = 0, 1e4 * x[2]
    low, largest = native_decoding.quantize(x)
    again = (low.float() - 128) * largest.unsqueeze(1) / 127
    assert ((again - x).abs() <= 0.51 * largest.unsqueeze(1) / 127).all()
    bias = torch.randn(100)
    expected = x * largest.unsqueeze(1) + bias
    torch.testing.assert_close(native_decoding.rescale_(x.clone(), largest, bias), expected)


@pytest.mark.skipif(not native_decoding.has_int8_product(), reason="no AVX-512 with VNNI")
@pytest.mark.parametrize("rows", [1, 5, 6, 7, 23])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (7, 16), (64, 64), (100, 65), (33, 200)])
def test_a_product_of_8_bit_integers_is_exact(rows, inputs, outputs):
    """The sums of integers are those of float64, where they are exact; no row affects another."""
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    x[0], weight[0] = 0, 0
    x[-1] *= 1e3
    scale = weight.abs().amax(1).clamp(min=1e-12) / 127
    whole = (weight / scale.unsqueeze(1)).round().double()
    largest = x.abs().amax(1, keepdim=True).clamp(min=1e-12)
    low = (128.5 + x * (127 / largest)).floor().double() - 128
    expected = (low @ whole.T) * (scale / 127) * largest + bias
    product = native_decoding.MatrixProduct(native_decoding.INT8, 0)
    layout = product.layout(weight)
    result = product(x, layout, bias)
    torch.testing.assert_close(result.double(), expected, atol=1e-6, rtol=1e-5)
    assert torch.equal(product(x[:1], layout, bias), result[:1])


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 23])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(1, 1), (7, 16), (64, 64), (100, 65), (33, 200), (512, 9)]
)
def test_a_product_of_float32_matrices(rows, inputs, outputs):
    """The product is that of float64 up to rounding; no row affects another, not even by NaN."""
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    product = native_decoding.matrix_product("float32")
    layout = product.layout(weight)
    result = product(x, layout, bias)
    expected = x.double() @ weight.double().T + bias.double()
    torch.testing.assert_close(result.double(), expected, atol=1e-4, rtol=1e-5)
    x[1:] = torch.nan
    again = product(x.unsqueeze(1), layout, bias)
    assert torch.equal(again[0], result[:1])
    assert again[1:].isnan().all()


def _translations(decoder, score, precision, search, native):
    [hypotheses] = _all_translations(decoder, score, precision, [search], native)
    return hypotheses


def _all_translations(decoder, score, precision, searches, native):
    """The translations of one network by several searches."""
    model, data = network(decoder, score).float().eval(), batch()
    networks = Networks([model], Columns(), precision)
    sources = [ids[:n].tolist() for ids, n in zip(data.source, data.source_lengths, strict=True)]
    requests = [Request(max_length=4 + i) for i in range(len(sources))]
    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(packed, "library", lambda: None)
        memories = networks.memories(sources)
        with networks.generating():
            return [search(*networks.first_step(memories), requests) for search in searches]


@pytest.mark.parametrize(
    "search", [Greedy(), Beam(width=3, n_best=3, coverage=0.1)], ids=["greedy", "beam"]
)
@pytest.mark.parametrize(("decoder", "score"), pairs_of_choices())
def test_searches_find_the_same(decoder, score, search):
    if decoder == "fixed" and isinstance(search, Beam):
        search = Beam(width=3, n_best=3)
    plain, fast = (
        _translations(decoder, score, "float32", search, native) for native in (False, True)
    )
    for ours, theirs in zip(fast, plain, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-4)


@pytest.mark.parametrize(
    ("decoder", "score"),
    [(decoder, score) for decoder in DECODERS for score in ("general", "concat")],
)
def test_a_whole_search_finds_what_its_steps_find(decoder, score):
    """Beams of all widths with all length penalties."""
    searches = [
        Beam(width=width, n_best=min(width, 3), length_penalty=penalty)
        for width in (1, 2, 9, 30)
        for penalty in ("none", "average", "power", "wu", "reward")
    ]
    plain, fast = (
        _all_translations(decoder, score, "float32", searches, native) for native in (False, True)
    )
    for search, of_steps, whole in zip(searches, plain, fast, strict=True):
        for ours, theirs in zip(whole, of_steps, strict=True):
            assert [h.tokens for h in ours] == [h.tokens for h in theirs], search
            for name in ("score", "log_prob"):
                expected = [getattr(h, name) for h in theirs]
                assert [getattr(h, name) for h in ours] == pytest.approx(expected, abs=1e-4)


def test_the_exponent_of_the_penalty_may_be_an_integer():
    searches = [Beam(width=3, length_penalty="wu", alpha=alpha) for alpha in (1, 1.0)]
    of_int, of_float = _all_translations("luong", "general", "float32", searches, True)
    assert of_int == of_float


@pytest.mark.parametrize("penalty", ["power", "wu", "reward"])
def test_scores_have_the_precision_of_float64(penalty):
    search = Beam(width=3, n_best=3, length_penalty=penalty, alpha=9.9)
    [translations] = _all_translations("luong", "general", "float32", [search], True)
    for hypothesis in chain.from_iterable(translations):
        expected = search.penalty.score(hypothesis.log_prob, len(hypothesis.tokens) + 1)
        assert hypothesis.score == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("width", "penalty"), [(1, "none"), (3, "wu")])
@pytest.mark.parametrize("score", ["general", "concat"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_whole_search_without_a_table_of_tokens(decoder, score, width, penalty, monkeypatch):
    """For large vocabularies, each step multiplies the embeddings of its tokens."""
    search = Beam(width=width, n_best=width, length_penalty=penalty)
    with_table = _translations(decoder, score, "float32", search, True)
    monkeypatch.setattr(whole_search, "TABLE", 0)
    without = _translations(decoder, score, "float32", search, True)
    for ours, theirs in zip(without, with_table, strict=True):
        assert [h.tokens for h in ours] == [h.tokens for h in theirs]
        assert [h.log_prob for h in ours] == pytest.approx([h.log_prob for h in theirs], abs=1e-4)


@pytest.mark.parametrize(
    ("decoder", "score"), [("luong", "general"), ("bahdanau", "concat"), ("conditional", "concat")]
)
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_whole_search_in_low_precision_is_close(precision, decoder, score):
    if native_decoding.matrix_product(precision) is None:
        pytest.skip("no product")
    search = Beam(width=30, length_penalty="none")
    low, exact = (
        _translations(decoder, score, name, search, True) for name in (precision, "float32")
    )
    for ours, theirs in zip(low, exact, strict=True):
        assert ours[0].score == pytest.approx(theirs[0].score, rel=0.02)


@pytest.mark.parametrize(
    ("decoder", "score", "overrides", "is_whole"),
    [
        ("luong", "general", (), True),
        ("luong", "concat", (), True),
        ("luong", "general", ("decoder.num_layers=2",), False),
        ("luong", "general", ("decoder.layer_norm=true",), False),
        ("luong", "general", ("model.lexical=true",), False),
        ("luong", "general", ("cell=lstm",), False),
        ("bahdanau", "general", (), True),
        ("bahdanau", "concat", (), True),
        ("bahdanau", "normed_concat", (), True),
        ("bahdanau", "concat", ("decoder.num_layers=2",), False),
        ("bahdanau", "concat", ("model.copy=true",), False),
        ("luong_feed", "general", (), True),
        ("luong_feed", "concat", (), True),
        ("luong_feed", "concat", ("decoder.num_layers=2",), False),
        ("luong_feed", "general", ("decoder.context_gate=true",), False),
        ("conditional", "general", (), True),
        ("conditional", "concat", (), True),
        ("conditional", "concat", ("decoder.num_layers=2",), False),
        ("conditional", "concat", ("decoder.transition_depth=2",), False),
    ],
)
def test_other_networks_are_searched_step_by_step(decoder, score, overrides, is_whole):
    model = network(decoder, score, *overrides).float()
    networks = Networks([model], Columns(), "float32")
    [memory] = networks.memories([[5, 6, 7]])
    assert not computes(model, memory)  # outside of `generating`
    with networks.generating():
        assert computes(model, memory) == is_whole


def test_keys_whose_powers_could_overflow_are_searched_step_by_step():
    """The search in C++ reads powers of the keys; other searches give the translations of networks with such keys."""
    model = network("bahdanau", "concat").float()
    torch.nn.init.normal_(model.decoder.attention.score.key_layer.weight, std=100)
    networks = Networks([model], Columns(), "float32")
    with networks.generating():
        [memory] = networks.memories([[5, 6, 7]])
        assert memory.keys.abs().amax() > 34
        assert not computes(model, memory)


class _Operators(TorchDispatchMode):
    """Counts operators that compute: views, allocations and conversions to arrays do not."""

    FREE = ("alias", "detach", "empty", "lift_fresh", "reshape", "resolve", "select.int", "split", "squeeze", "to.",
            "transpose", "unsqueeze", "view")  # fmt: skip

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func).removeprefix("aten.").removeprefix("new_")
        if not name.startswith(self.FREE):
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("decoder", "precision", "width", "most"),
    [
        ("luong", "float32", 1, 14),
        ("luong", "float32", 5, 21),
        ("luong", "int8", 1, 14),
        ("luong", "int8", 5, 21),
        ("bahdanau", "float32", 5, 28),
        ("bahdanau", "int8", 5, 28),
    ],
)
def test_operators_of_a_step(decoder, precision, width, most, monkeypatch):
    """Every operator of a step costs microseconds, whatever it computes: they must not become more."""
    product = native_decoding.matrix_product(precision)
    if product is None or product.kind == native_decoding.BFLOAT16:
        pytest.skip("no 8-bit products in the extension, or AMX")
    calls = Counter()
    for name, value in vars(native_decoding).copy().items():
        if getattr(value, "__module__", "") == native_decoding.__name__ and name[0] != "_":
            monkeypatch.setattr(native_decoding, name, _counted(value, calls))
    monkeypatch.setattr(ModelStep, "search", lambda *_: None)  # step by step
    model = network(decoder, "concat" if decoder == "bahdanau" else "general").float().eval()
    model.output.bias[EOS] = -1e3  # no hypothesis ends before the limit
    networks = Networks([model], Columns(), precision)
    counts = []
    for length in (4, 5, 15):  # the first search packs the weights
        calls.clear()
        memories = networks.memories([[5, 6, 7]] * 2)
        with networks.generating(), _Operators() as operators:
            search = Greedy() if width == 1 else Beam(width=width)
            search(*networks.first_step(memories), [Request(max_length=length)] * 2)
        counts.append(operators.counts + calls)
    per_step = {name: (n - counts[1][name]) / 10 for name, n in counts[2].items()}
    assert sum(per_step.values()) <= most, per_step


def _counted(function, calls):
    def counted(*arguments, **options):
        calls[f"native {function.__name__}"] += 1
        return function(*arguments, **options)

    return counted


def test_tanh_in_generation_is_the_plain_one_with_gradients():
    x = torch.randn(5, requires_grad=True)
    with torch.enable_grad():
        tanh(x).sum().backward()
    torch.testing.assert_close(x.grad, 1 - torch.tanh(x) ** 2)


def test_vectors_of_bfloat16_are_converted(monkeypatch):
    """Encoders with bfloat16 products may return bfloat16; the C++ functions read float32."""
    weights, values = torch.rand(4, 6), torch.randn(2, 6, 40)
    sentences = torch.tensor([0, 0, 1, 1])
    truth = torch.einsum("ns,nsm->nm", weights, values.bfloat16().float()[sentences])
    summed = native_decoding.weighted_sum(weights, values.bfloat16(), sentences)
    torch.testing.assert_close(summed, truth, **CLOSE)
    if not native_decoding.has_int8_product():
        pytest.skip("no VNNI instructions")
    product = native_decoding.MatrixProduct(native_decoding.INT8, 0)
    monkeypatch.setattr(native_decoding, "matrix_product", lambda _: product)
    weight, bias, x = torch.randn(32, 40), torch.randn(32), torch.randn(3, 40).bfloat16()
    with generating(PackedWeights("int8")):
        multiply = packed.Packed(((weight, bias),), "int8")
        assert torch.equal(*multiply(x), *multiply(x.float()))
