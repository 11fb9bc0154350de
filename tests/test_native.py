"""Native kernels: values and gradients of plain PyTorch."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from builders import batch, network, pairs_of_choices

from nmt.foundation.interfaces import Encoded
from nmt.model.attention.concat import Concat
from nmt.model.attention.dot import Dot
from nmt.model.attention.general import General
from nmt.model.attention.layer import Attention
from nmt.model.attention.normed_concat import NormedConcat
from nmt.model.decoder.readout import Maxout
from nmt.model.layers.cells.gru import GRU, gru
from nmt.model.layers.fused_cross_entropy import linear_cross_entropy
from nmt.model.native import kernel_library
from nmt.model.native.kernel_library import library
from nmt.model.native.native_functions import NativeGRUStep, NativeMemory
from nmt.training.objective.cross_entropy import CrossEntropy

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler")
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2}


def close(one, other, dtype=torch.float32):
    one = one.detach().float()
    other = other.detach().float()
    scale = max(1.0, float(other.abs().max()))
    torch.testing.assert_close(one / scale, other / scale, atol=TOLERANCE[dtype], rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 16)], ids=str)
def test_gru(shape, dtype, monkeypatch):
    torch.manual_seed(0)
    size = shape[-1]
    inputs = [  # the first two are slices of larger tensors
        torch.randn(*shape[:-1], 4, 3 * size, dtype=dtype)[..., 1, :],
        torch.randn(*shape[:-1], 3 * size + 2, dtype=dtype)[..., : 3 * size],
        torch.randn(shape),
    ]
    results = []
    for native in (True, False):
        leaves = [x.detach().requires_grad_() for x in inputs]
        monkeypatch.setattr(kernel_library, "library", library if native else lambda: None)
        (h,) = gru(*leaves[:2], (leaves[2],))
        assert (h.grad_fn.name() == "NativeGRUStepBackward") == native
        results.append([h, *torch.autograd.grad((h * torch.arange(size)).sum(), leaves)])
    for native, plain in zip(*results, strict=True):
        assert native.dtype == plain.dtype
        close(native, plain, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("directions", [1, 2])
def test_gru_over_time(directions, dtype, monkeypatch):
    torch.manual_seed(0)
    layer = GRU(5, 6, directions)
    lengths = torch.tensor([4, 1, 3])
    inputs = torch.randn(3, 4, 5), torch.randn(3, 6)
    results = []
    for native in (True, False):
        monkeypatch.setattr(kernel_library, "library", library if native else lambda: None)
        layer.zero_grad()
        x, h = (value.clone().requires_grad_() for value in inputs)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            y, (last,) = layer(x, (h,) if directions == 1 else None, lengths)
        names = []
        nodes = [y.grad_fn]
        while nodes:
            node = nodes.pop()
            names.append(node.name())
            nodes.extend(following for following, _ in node.next_functions if following)
        assert ("NativeGRUBackward" in names) == native
        loss = (y * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum() + last.square().sum()
        loss.backward()
        gradients = [x.grad, *(p.grad for p in layer.parameters())]
        results.append([y, last, *gradients, *([h.grad] if directions == 1 else [])])
    for one, other in zip(*results, strict=True):
        close(one, other, dtype)


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("score", [Concat, NormedConcat, General, Dot])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_attention(score, steps, dtype, monkeypatch):
    torch.manual_seed(0)
    size = {"size": 24} if issubclass(score, Concat) else {}
    attention = Attention(score(query_size=20, memory_size=20, **size))
    mask = torch.arange(6) < torch.tensor([6, 1, 4]).unsqueeze(1)
    inputs = torch.randn(3, 6, 20) / 2, torch.randn(3, steps, 20) / 2
    results = []
    for native in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(kernel_library, "library", library if native else lambda: None)
            attention.zero_grad()
            values, query = (x.clone().requires_grad_() for x in inputs)
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                memory = attention.prepare(Encoded(values, mask, values[:, 0]))
                assert (attention.native_memory(memory, memory.values, None) is not None) == native
                weights, context, _ = attention.attend_and_sum(
                    attention.project(query), memory, ((), ())
                )
            loss = (context * torch.arange(20)).sum() + (weights * torch.arange(6)).sum()
            loss.backward()
            gradients = [values.grad, query.grad, *(p.grad for p in attention.parameters())]
            results.append([weights, context, *gradients])
    assert not results[0][0][~mask.unsqueeze(1).expand(-1, steps, -1)].any()
    for one, other in zip(*results, strict=True):
        close(one, other, dtype)


@pytest.mark.parametrize("largest", [30.0, 40.0, torch.nan])
def test_large_keys(largest, monkeypatch):
    """Powers of large keys would overflow: plain PyTorch computes these scores."""
    torch.manual_seed(0)
    attention = Attention(Concat(query_size=4, memory_size=4, size=4))
    query = 60 * torch.randn(2, 3, 4)
    results = []
    for native in (True, False):
        monkeypatch.setattr(kernel_library, "library", library if native else lambda: None)
        values = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
        memory = attention.prepare(Encoded(values, torch.ones(2, 5) > 0, values[:, 0]))
        keys = memory.keys / memory.keys.abs().max() * largest
        memory = replace(memory, keys=keys.detach().requires_grad_())
        is_native = attention.native_memory(memory, memory.values, None) is not None
        assert is_native == (native and largest < 34)
        weights, context, _ = attention.attend_and_sum(query, memory, ((), ()))
        (gradient,) = torch.autograd.grad(context.square().sum(), memory.keys)
        results.append([weights, context, gradient])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4, equal_nan=True)


def test_maxout():
    """The gradient of a maximum flows to the larger half."""
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    layer = Maxout(5, 4).double()
    y = layer(x)
    first, second = layer.layer(x).chunk(2, -1)
    torch.testing.assert_close(y, torch.maximum(first, second), atol=0, rtol=0)
    weights = list(layer.parameters())
    expected = torch.autograd.grad(torch.maximum(first, second).square().sum(), weights)
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), weights), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("agreement", [0.0, 2.5])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_cross_entropy(smoothing, agreement, dtype, monkeypatch):
    torch.manual_seed(0)
    inputs = torch.randn(38, 12), torch.randn(301, 12), torch.randn(301)
    targets = torch.randint(301, (38,))
    results = []
    for native in (True, False):
        with monkeypatch.context() as patch:
            patch.setattr(kernel_library, "library", library if native else lambda: None)
            leaves = [x.clone().requires_grad_() for x in inputs]
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                loss, nll = linear_cross_entropy(*leaves, targets, smoothing, agreement=agreement)
            results.append([loss, nll, *torch.autograd.grad(loss, leaves)])
    for one, other in zip(*results, strict=True):
        close(one, other, dtype)


def losses(decoder: str, attention: str, steps: int) -> list[float]:
    """Losses of updates on the same batch, in float32."""
    model = network(decoder, attention).float().train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    objective = CrossEntropy(label_smoothing=0.1)
    result = []
    for step in range(steps):
        loss = model(objective, batch(), step)
        (loss.total / loss.num_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        result.append(float(loss.total.detach()) / loss.num_tokens)
    return result


@pytest.mark.parametrize(("decoder", "score"), pairs_of_choices())
def test_losses_over_6_updates(decoder, score, monkeypatch):
    native = losses(decoder, score, 6)
    monkeypatch.setattr(kernel_library, "library", lambda: None)
    assert native == pytest.approx(losses(decoder, score, 6), abs=1e-5)


def test_second_derivatives_are_refused():
    x = torch.randn(4, 12, requires_grad=True)
    loss, _ = linear_cross_entropy(x, torch.randn(9, 12), torch.zeros(9), torch.arange(4), 0.1)
    h = torch.randn(3, 5, requires_grad=True)
    (next_h,) = gru(torch.randn(3, 15), torch.randn(3, 15), (h,))
    for total, leaf in ((loss, x), (next_h.sum(), h)):
        torch.autograd.grad(total, leaf, retain_graph=True)
        with pytest.raises(RuntimeError, match="have no second derivatives"):
            torch.autograd.grad(total, leaf, create_graph=True)


def test_results_do_not_depend_on_the_default_dtype():
    def gradients() -> list[torch.Tensor]:
        model(CrossEntropy(), batch(), 0).total.backward()
        result = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        return result

    model = network("bahdanau", "concat").float().train()
    expected = gradients()
    torch.set_default_dtype(torch.float64)
    try:
        results = gradients()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(results, expected, strict=True):
        assert torch.equal(one, other)


def test_nan_and_infinity_stay(monkeypatch):
    for bad in (torch.nan, torch.inf):
        x = torch.randn(4, 12)
        x[1, 3] = bad
        x.requires_grad_()
        loss, _ = linear_cross_entropy(x, torch.randn(9, 12), torch.zeros(9), torch.arange(4), 0.1)
        assert not torch.isfinite(loss)
    h = torch.randn(3, 5)
    a = torch.randn(3, 15)
    a[1, 2] = torch.nan
    assert NativeGRUStep.apply(a, torch.randn(3, 15), h.requires_grad_()).isnan().any()


def test_negligible_weights_have_no_denormal_gradient():
    keys = torch.tensor([[[0.0], [-80.0], [-200.0]]]).requires_grad_()
    values = torch.ones(1, 3, 1).cumsum(1).requires_grad_()
    memory = NativeMemory("product", keys, values, torch.ones(1, 3) > 0, None, torch.float32)
    weights, context = memory.attend(torch.ones(1, 1, 1))
    context.sum().backward()
    assert weights[0, 0, 2] == 0
    assert 0 < float(weights[0, 0, 1].detach()) < 1e-30
    assert not keys.grad.any()


def test_exponentials_are_exact_to_float32():
    x = torch.linspace(-30, 30, 4096).view(-1, 1).requires_grad_()
    a = torch.cat([torch.full_like(x, -200), torch.full_like(x, -200), x], 1)  # n alone
    h = NativeGRUStep.apply(a, torch.zeros_like(a), torch.zeros(4096, 1))
    torch.testing.assert_close(h, torch.tanh(x.double()).float(), atol=2e-7, rtol=0)


def test_the_switch_and_a_missing_compiler(monkeypatch, caplog):
    plain = library.__wrapped__
    monkeypatch.setenv("NMT_NATIVE", "0")
    assert plain() is None
    monkeypatch.delenv("NMT_NATIVE")
    monkeypatch.setenv("CXX", "/no/such/compiler")
    assert plain() is None
    assert "training is slower" in caplog.text


def test_a_failing_compiler_is_reported(monkeypatch, caplog, tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n[ $1 = --version ] && exit 0\necho unknown option >&2\nexit 1\n"
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("NMT_CACHE", str(tmp_path))
    assert library.__wrapped__() is None
    assert "cannot be compiled (unknown option)" in caplog.text
    assert not list(tmp_path.glob("native-*"))


def test_threads_compile_once_and_a_damaged_library_is_reported(monkeypatch, caplog, tmp_path):
    caplog.set_level("INFO")
    monkeypatch.setenv("CXX", f"{os.environ.get('CXX', 'c++')} -O0")  # with an argument
    monkeypatch.setenv("NMT_CACHE", str(tmp_path))
    with ThreadPoolExecutor() as pool:
        libraries = list(pool.map(lambda _: library.__wrapped__(), range(3)))
    assert None not in libraries
    assert len([text for text in caplog.messages if "compiling the C++ extension" in text]) == 1
    [file] = tmp_path.glob("native-*/library.so")
    file.unlink()  # without changing the loaded library
    file.write_bytes(b"")
    assert library.__wrapped__() is None
    assert "damaged (wrong checksum), so the C++ extension cannot be used" in caplog.messages[-1]
