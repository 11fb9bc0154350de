"""The recurrence against PyTorch's own layers, written loops and finite differences."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.model.layers import cells
from nmt.model.layers.cells import recurrent
from nmt.model.layers.cells.gru import GRU, gru
from nmt.model.layers.cells.lstm import lstm
from nmt.model.layers.loop_products import LoopProduct, fused_linear
from nmt.model.layers.numeric import tanh
from nmt.model.layers.packed import PackedWeights, generating

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("directions", [1, 2])
def test_equals_torch_forward_and_backward(cell, directions):
    """Padding included: torch's packed sequences are the truth for two directions."""
    layer = recurrent(cell, 5, 4, directions).double()
    torch.nn.init.normal_(layer.rnn.bias_hh_l0)
    lengths = torch.tensor([6, 2, 4])
    x = torch.randn(3, 6, 5, dtype=torch.float64)
    state = (
        None
        if directions == 2
        else tuple(torch.randn(3, 4, dtype=torch.float64) for _ in range(layer.state_parts))
    )

    ours, final = layer(x, state, lengths if directions == 2 else None)
    if directions == 2:
        packed, truth_final = layer.rnn(
            pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        )
        truth, _ = pad_packed_sequence(packed, batch_first=True)
        real = (torch.arange(6) < lengths.unsqueeze(1)).unsqueeze(-1)
        ours, truth = ours * real, truth * real
    else:
        initial = tuple(part.unsqueeze(0) for part in state)
        truth, truth_final = layer.rnn(x, initial if cell == "lstm" else initial[0])
    h = truth_final[0] if cell == "lstm" else truth_final
    torch.testing.assert_close(ours, truth)
    torch.testing.assert_close(final[0], h.transpose(0, 1).flatten(1))

    weights, probe = list(layer.parameters()), torch.randn_like(ours)
    for mine, theirs in zip(
        torch.autograd.grad((ours * probe).sum(), weights),
        torch.autograd.grad((truth * probe).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("cell", "gates", "parts"), [(gru, 3, 1), (lstm, 4, 2)])
def test_cell_gradients_agree_with_finite_differences(cell, gates, parts):
    a, u = (torch.randn(2, gates * 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    state = tuple(torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(parts))
    assert gradcheck(lambda a, u, *state: cell(a, u, state), (a, u, *state))


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_shared_product_gradients(memory, biased):
    """A weight matrix of all rows, and a memory of each sentence: the deferred gradient is the true one."""
    leading = (2,) if memory else ()
    operand = torch.randn(*leading, 4, 4, dtype=torch.float64, requires_grad=True)
    bias = (
        torch.randn(*((2, 1, 4) if memory else (4,)), dtype=torch.float64, requires_grad=True)
        if biased
        else None
    )
    x = torch.randn(*leading, 3, 4, dtype=torch.float64, requires_grad=True)

    def recur(x, operand, *bias):
        shared = LoopProduct(operand, *bias)
        for _ in range(3):
            x = torch.tanh(shared(x))
        return x

    assert gradcheck(recur, (x, operand, *([bias] if biased else [])))


class Products(TorchDispatchMode):
    """Counts the matrix products whose result has a certain shape."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.mm.default and tuple(result.shape) == self.shape:
            self.count += 1
        return result


@pytest.mark.parametrize(
    ("multiply", "products"), [(LoopProduct, 1), (lambda operand: lambda x: x @ operand, 7)]
)
def test_shared_product_weight_gradient_is_one_product(multiply, products):
    """However many steps: one product makes the weight's gradient, where a plain loop makes one a step."""
    operand = torch.randn(4, 4, requires_grad=True)
    product, x = multiply(operand), torch.randn(2, 4)
    for _ in range(7):
        x = torch.tanh(product(x))
    with Products((4, 4)) as counted:
        x.sum().backward()
    assert counted.count == products


@pytest.mark.parametrize("cell", ["lstm", "norm_lstm"])
@pytest.mark.parametrize("directions", [1, 2])
def test_every_cell_of_a_step_forgets_little_at_first(cell, directions):
    """The biases of the forget gate sum to 1, also in the further cells of a deep transition."""
    layer = recurrent(cell, 5, 4, directions, depth=3)
    assert len(layer.transitions) == 2
    for transition in layer.transitions:
        gates = transition.input_bias.unflatten(-1, (4, 4))
        torch.testing.assert_close(gates[:, 1], torch.ones(directions, 4))
        assert not gates[:, [0, 2, 3]].any()


def test_fused_products_equal_separate_ones():
    first, second = torch.randn(3, 4), torch.randn(5, 4)
    bias, x = torch.randn(5), torch.randn(2, 4)
    expected = (x @ first.t(), x @ second.t() + bias)
    owner = torch.nn.Identity()
    torch.testing.assert_close(
        fused_linear(owner, "both", (first, None), (second, bias))(x), expected
    )
    with torch.no_grad(), generating(PackedWeights("float32")):
        torch.testing.assert_close(
            fused_linear(owner, "both", (first, None), (second, bias))(x), expected
        )


def test_tanh_is_tanh():
    x = torch.linspace(-30, 30, 1001, dtype=torch.float64)
    torch.testing.assert_close(tanh(x), torch.tanh(x))


def test_bfloat16_stays_close_to_float32():
    layer, x = recurrent("gru", 16, 16), torch.randn(4, 9, 16)
    with torch.autocast("cpu", torch.bfloat16):
        low, _ = layer(x)
    torch.testing.assert_close(low, layer(x)[0], atol=0.03, rtol=0)


MINIMAL = """
import torch

from nmt.model.layers.numeric import tanh
from nmt.model.layers.recurrence import Recurrent


class Minimal(Recurrent):
    gates = 2

    @classmethod
    def conflicts(cls, run):
        if run.value("model.copy"):
            yield run.error("model.copy", "is not for cell=minimal")

    def cell(self, a, u, state, update_mask=None):
        (h,) = state
        f_a, n_a = a.chunk(2, -1)
        f_u, n_u = u.chunk(2, -1)
        f = torch.sigmoid(f_a + f_u)
        n = tanh(n_a + f * n_u)
        return (torch.lerp(n if update_mask is None else n * update_mask, h, f),)
"""
"""A minimal gated unit (Zhou et al. 2016), as a user would add it."""
USE = """
import contracts
from builders import batch, network

for decoder in ("bahdanau", "luong", "luong_feed", "conditional"):
    for more in ([], ["decoder.num_layers=2", "encoder.transition_depth=2"]):
        model = network(decoder, "general", "cell=minimal", *more)
        contracts.all_at_once_equals_single_steps(model, batch())
        contracts.a_batch_equals_one_by_one(model, batch())
        contracts.every_parameter_learns(model, batch())
        contracts.gradients_agree_with_finite_differences(model, batch())
"""


def test_a_cell_is_found_by_the_name_of_its_file(tmp_path, monkeypatch, unchecked):
    (tmp_path / "minimal.py").write_text(MINIMAL)
    monkeypatch.setattr(cells, "__path__", [*cells.__path__, str(tmp_path)])
    layer = recurrent("minimal", 5, 4, 2).double()
    monkeypatch.delitem(sys.modules, f"{cells.__name__}.minimal")
    assert type(layer).__name__ == "Minimal"
    x, lengths = torch.randn(2, 6, 5, dtype=torch.float64), torch.tensor([6, 3])
    together, _ = layer(x, lengths=lengths)
    alone, _ = layer(x[1:, :3], lengths=lengths[1:])
    torch.testing.assert_close(together[1:, :3], alone)
    assert list(cells.NAMES) == sorted(
        path.stem for path in Path(cells.__file__).parent.glob("[!_]*.py")
    )


@pytest.mark.parametrize("cell", ["gru", "lstm", "norm_gru"])
def test_the_last_state_of_one_direction_is_before_the_padding(cell):
    layer, x, lengths = recurrent(cell, 5, 4), torch.randn(2, 6, 5), torch.tensor([6, 3])
    _, (last,) = layer(x, lengths=lengths)
    alone, _ = layer(x[1:, :3])
    torch.testing.assert_close(last[1:], alone[:, -1])


class Halved(GRU):
    """A cell of a user that changes the GRU."""

    def cell(self, a, u, state, update_mask=None):
        (h,) = super().cell(a, u, state, update_mask)
        return (h / 2,)


@pytest.mark.parametrize("directions", [1, 2])
def test_a_cell_that_extends_the_gru_is_used_in_training_and_generation(directions):
    layer, x = Halved(5, 4, directions), torch.randn(2, 6, 5)
    lengths = torch.tensor([6, 6]) if directions == 2 else None
    trained, _ = layer(x, lengths=lengths)
    with torch.no_grad(), generating(PackedWeights("float32")):
        generated, _ = layer(x, lengths=lengths)
    state = torch.zeros(2, 4)
    first = layer.cell(
        F.linear(x[:, 0], *layer.weight_block("ih")),
        F.linear(state, *layer.weight_block("hh")),
        (state,),
    )
    torch.testing.assert_close(trained[:, 0, :4], first[0])
    torch.testing.assert_close(generated, trained)


@pytest.mark.exhaustive
def test_a_new_cell_is_one_file(tmp_path):
    """Encoders, decoders and the check of the configuration find it by its name, without an edit."""
    for folder in ("nmt", "conf", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "before")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    (tmp_path / "nmt/model/layers/cells/minimal.py").write_text(MINIMAL)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{tmp_path / 'tests'}"}
    command = [sys.executable, "-c", USE]
    used = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env)
    assert used.returncode == 0, used.stderr
    for typed, message in {
        "cell=minimum": "gru, lstm, minimal, norm_gru, norm_lstm",
        "encoder.cell=minimal": "model.copy=true: is not for cell=minimal",
    }.items():
        command = [
            sys.executable,
            "-m",
            "nmt.train",
            typed,
            "experiment=reverse",
            "model.copy=true",
        ]
        wrong = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env)
        assert wrong.stderr.count(message) == 1, wrong.stderr


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_second_derivatives_are_those_of_torch(cell):
    layer = recurrent(cell, 5, 4).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)

    def second(states):
        [gradient] = torch.autograd.grad((states**2).sum(), x, create_graph=True)
        weights = [x, *layer.rnn.parameters()]
        return torch.autograd.grad((gradient**2).sum(), weights, allow_unused=True)

    for mine, theirs in zip(second(layer(x)[0]), second(layer.rnn(x)[0]), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_second_derivatives_under_autocast_are_refused():
    x = torch.randn(2, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        y = LoopProduct(torch.randn(3, 3, requires_grad=True))(x)
    with pytest.raises(RuntimeError, match="not available under autocast"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


@pytest.mark.parametrize("cell", ["gru", "lstm", "norm_gru", "norm_lstm"])
@pytest.mark.parametrize("directions", [1, 2])
def test_the_first_weights_of_each_gate(cell, directions):
    """Orthogonal for the state, Xavier's for the input; only the forget gate has a bias."""
    torch.manual_seed(1)
    size, inputs = 6, 9
    layer = recurrent(cell, inputs, size, directions)
    bound = (6 / (size + inputs)) ** 0.5
    for name, parameter in layer.rnn.named_parameters():
        for gate, part in enumerate(parameter.detach().split(size)):
            if name.startswith("weight_hh"):
                torch.testing.assert_close(part @ part.t(), torch.eye(size))
            elif name.startswith("weight_ih"):
                assert bound / 2 < part.abs().max() <= bound
            else:
                is_forget_gate = "lstm" in cell and gate == 1 and name.startswith("bias_ih")
                assert part.tolist() == [float(is_forget_gate)] * size
    if cell == "norm_lstm":  # the normalisation removes the bias before it
        biases = layer.input_norm.bias.detach().flatten().unflatten(0, (-1, 4, size))
        assert biases[:, 1].eq(1).all()
        assert not biases[:, [0, 2, 3]].any()
