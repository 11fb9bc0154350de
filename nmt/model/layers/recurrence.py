"""Recurrent layers, and how to train them fast.

A recurrence spends its time on products of a small state with one fixed matrix, step after step:

    y_t = x_t W,        t = 1 … T.

The forward pass cannot avoid T small products. The backward pass has twice as many, but T of them can be joined into
one. With d_t = ∂L/∂y_t,

    ∂L/∂x_t = d_t Wᵀ            is needed at once, because x_t came from step t-1;
    ∂L/∂W   = Σ_t x_tᵀ d_t      is not needed inside the loop.

Stack the x_t and the d_t over time, and ∂L/∂W is *one* large product, [x_1; …; x_T]ᵀ [d_1; …; d_T], instead of T small
ones that each read and write all of ∂L/∂W. `Shared` does that for any loop written in plain PyTorch. W may be a weight
matrix [K M] shared by all rows, or a memory [B S M] shared by all queries of a sentence (then x_t are the weights of
attention).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.model.layers.cells import CELLS, Cell, CellName, DropoutOf, GateNorm, lstm, state_parts
from nmt.model.layers.dropout import Dropout
from nmt.model.layers.packed import Block, join, linear, packed


class _Gather(Function):
    """Identity on the operand. Its backward runs after the backward of all steps and computes the one large product."""

    @staticmethod
    def forward(
        ctx: Any, operand: Tensor, bias: Tensor | None, tape: list[tuple[Tensor, Tensor]]
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.tape, ctx.has_bias, ctx.transposed = tape, bias is not None, operand.stride(-1) != 1
        return operand.view_as(operand), None if bias is None else bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, *unused: None) -> tuple[Tensor | None, Tensor | None, None]:
        if not ctx.tape:
            return None, None, None
        x, d = (torch.cat(column, dim=-2) for column in zip(*ctx.tape, strict=True))
        ctx.tape.clear()
        d_bias = d.sum(-2, keepdim=d.dim() == 3) if ctx.has_bias else None
        if (
            ctx.transposed
        ):  # in the operand's memory layout, so that the gradient need not be transposed later
            return (d.transpose(-1, -2) @ x).transpose(-1, -2), d_bias, None
        return x.transpose(-1, -2) @ d, d_bias, None


def _multiply(x: Tensor, operand: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None:
        return x @ operand
    return torch.addmm(bias, x, operand) if operand.dim() == 2 else torch.baddbmm(bias, x, operand)


class _Product(Function):
    """x @ operand + bias for one step; its backward leaves (x, d) on the tape for `_Gather`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, operand: Tensor, bias: Tensor | None, tape: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        x_low = x.to(operand.dtype)
        ctx.save_for_backward(x_low, operand)
        ctx.tape, ctx.dtype = tape, x.dtype
        return _multiply(x_low, operand, bias)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, None, None, None]:
        x, operand = ctx.saved_tensors
        d = d.to(operand.dtype)
        ctx.tape.append((x, d))
        dx = (d @ operand.transpose(-1, -2)).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        return dx, None, None, None


class Shared:
    """An operand used at every step of a loop: `shared(x)` is x @ operand + bias; its gradient is one product.

    operand [K M] with x [N K], or operand [B S M] with x [B n S]; bias [M] or [B 1 M]. Under autocast the products run
    in autocast's type (the result too); the operand is converted once.
    """

    def __init__(self, operand: Tensor, bias: Tensor | None = None) -> None:
        device = operand.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            operand, bias = operand.to(dtype), None if bias is None else bias.to(dtype)
        self._tape: list[tuple[Tensor, Tensor]] = []
        self._operand, self._bias = operand, bias
        if torch.is_grad_enabled() and operand.requires_grad:
            self._operand, self._bias = _Gather.apply(operand, bias, self._tape)

    def __call__(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return _multiply(x.to(self._operand.dtype), self._operand, self._bias)
        return _Product.apply(x, self._operand, self._bias, self._tape)


def fuse(owner: nn.Module, name: str, *blocks: Block) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Several products with the same x, as one; `name` distinguishes the owner's products if they are kept packed."""
    product = packed(owner, name, *blocks)
    if product is not None:
        return product
    weight, bias = blocks[0] if len(blocks) == 1 else join(*blocks)
    shared = Shared(weight.t(), bias)
    return lambda x: shared(x).split([len(weight) for weight, _ in blocks], -1)


@dataclass(frozen=True)
class Loop:
    """What a loop over time calls at each step. `product`: the gates of the state, from h, and whatever else is multiplied
    by h; `step`: the next state, from the gates of the input, the gates of the state, and the state."""

    product: Callable[[Tensor], tuple[Tensor, ...]]
    step: Callable[[Tensor, Tensor, Cell], Cell]


class Transition(nn.Module):
    """A step of a recurrence that has no input of its own: the gates of the input are a bias."""

    def __init__(self, gates: int, size: int, directions: int, norm: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(directions, gates * size, size))
        self.bias, self.input_bias = (
            nn.Parameter(torch.zeros(directions, gates * size)) for _ in range(2)
        )
        for gate in self.weight.data.flatten(0, 1).split(size):
            nn.init.orthogonal_(gate)
        self.norm = GateNorm(gates, size, directions) if norm else nn.Identity()

    @property
    def inputs(self) -> Tensor:
        return self.input_bias[0] if len(self.input_bias) == 1 else self.input_bias.unsqueeze(1)


class Recurrent(nn.Module):
    """One recurrent layer in one direction or two. The parameters live in a torch.nn.GRU or LSTM, which also runs the
    whole sequence on GPUs (cuDNN); on CPUs the loop below does this, both directions in the same step.

    `depth`: so many cells one after another in each step, of which only the first has an input (deep transition, Pascanu
    et al. 2014; Miceli Barone et al. 2017). `dropout`: in training, the same features of h are missing in the products of
    all steps of a sentence (recurrent dropout, Gal & Ghahramani 2016), or with `dropout_of` "update" in what updates h
    (Semeniuta et al. 2016); what the cell carries over stays whole. Layers with normalised gates, depth or dropout run
    step by step on GPUs too.

    Padding never enters the backward direction: each sentence is reversed on its own, so that in both directions the
    padding comes last, where nothing reads it.
    """

    def __init__(
        self,
        cell: CellName,
        input_size: int,
        hidden_size: int,
        directions: int = 1,
        *,
        depth: int = 1,
        dropout: float = 0.0,
        dropout_of: DropoutOf = "state",
    ) -> None:
        super().__init__()
        self.size, self.directions = hidden_size, directions
        name = cell.removeprefix("norm_")
        norm, gates, self.state_parts = name != cell, 4 if name == "lstm" else 3, state_parts(cell)
        kind = nn.LSTM if name == "lstm" else nn.GRU
        self.rnn = kind(input_size, hidden_size, batch_first=True, bidirectional=directions == 2)
        for key, parameter in self.rnn.named_parameters():
            parts = parameter.data.split(hidden_size)
            for gate in parts:
                if key.startswith("weight_hh"):
                    nn.init.orthogonal_(gate)
                elif key.startswith("weight_ih"):
                    nn.init.xavier_uniform_(gate)
                else:
                    nn.init.zeros_(gate)
            if name == "lstm" and key.startswith("bias_ih"):
                nn.init.ones_(parts[1])  # remember by default (Jozefowicz et al. 2015)
        self.transitions = nn.ModuleList(
            Transition(gates, hidden_size, directions, norm) for _ in range(depth - 1)
        )
        self.input_norm, self.state_norm = (
            GateNorm(gates, hidden_size, directions) if norm else nn.Identity() for _ in range(2)
        )
        self.cell = CELLS[name]
        if norm and name == "lstm":
            self.carried_norm = GateNorm(1, hidden_size, directions)
            self.cell = functools.partial(lstm, norm=self.carried_norm)
            with torch.no_grad():  # the normalisation takes away the bias that remembers
                self.input_norm.bias.select(-2, 1).fill_(1.0)  # type: ignore[operator, union-attr]
        self.dropout, self.dropout_of = Dropout(dropout, variational=True), dropout_of
        self._plain = not norm and depth == 1

    def block(self, name: str, columns: slice = slice(None), direction: int = 0) -> Block:
        """The weight and bias of the inputs ("ih", some columns of it if asked) or of the state ("hh")."""
        suffix = f"{name}_l0{('', '_reverse')[direction]}"
        return getattr(self.rnn, f"weight_{suffix}")[:, columns], getattr(
            self.rnn, f"bias_{suffix}"
        )

    def _both(self, name: str) -> tuple[Tensor, Tensor]:
        """The blocks of both directions: weights [2 K M], biases [2 1 M]."""
        (weight, bias), (weight_back, bias_back) = self.block(name), self.block(name, direction=1)
        return torch.stack([weight, weight_back]).transpose(1, 2), torch.stack(
            [bias, bias_back]
        ).unsqueeze(1)  # type: ignore[list-item]

    def mask(self, *rows: int) -> Tensor | None:
        """The features that recurrent dropout keeps at all steps, [*rows size]; None if nothing is dropped."""
        return self.dropout.mask(self.rnn.weight_hh_l0, *rows, self.size)  # type: ignore[arg-type]

    def loop(self, *beside: Block, mask: Tensor | None = None) -> Loop:
        """The steps of one direction; `beside`: more blocks that multiply h. The gates of the input must have passed
        `input_norm`."""
        first = fuse(self, "state", self.block("hh"), *beside)
        deeper = [fuse(t, "state", (t.weight[0], t.bias[0])) for t in self._transitions]
        return self._steps(first, deeper, mask)

    @property
    def _transitions(self) -> list[Transition]:
        return list(self.transitions)  # type: ignore[arg-type]

    def _steps(
        self,
        first: Callable[[Tensor], tuple[Tensor, ...]],
        deeper: Sequence[Callable[[Tensor], tuple[Tensor, ...]]],
        mask: Tensor | None,
    ) -> Loop:
        of_state, of_update = (mask, None) if self.dropout_of == "state" else (None, mask)

        def step(a: Tensor, u: Tensor, state: Cell) -> Cell:
            state = self.cell(a, self.state_norm(u), state, of_update)
            for transition, product in zip(self._transitions, deeper, strict=True):
                u = product(state[0] if of_state is None else state[0] * of_state)[0]
                state = self.cell(
                    transition.inputs.expand_as(u), transition.norm(u), state, of_update
                )
            return state

        return Loop(first if of_state is None else lambda h: first(h * of_state), step)

    def forward(
        self,
        x: Float[Tensor, "B T I"],
        state: Cell | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Float[Tensor, "B T H"], Cell]:
        """Outputs [B T directions·size] and the state after each sentence's last token, parts [B directions·size].

        `lengths` (in tokens, ≥ 1) is needed for two directions; without it every position counts. `mask`: see `mask`; if
        None, a new one is drawn where needed.
        """
        if mask is None:
            mask = self.mask(x.size(0)) if self.directions == 1 else self.mask(2, x.size(0))
        if x.is_cuda and self._plain and mask is None:
            return self._forward_cudnn(x, state, lengths)
        if torch.onnx.is_in_onnx_export() and x.size(1) != 1:
            return self._forward_whole(x, lengths)
        if self.directions == 1:
            a = self.input_norm(linear(self, "input", x, self.block("ih")))
            outputs, last = _run(self.loop(mask=mask), a.transpose(0, 1), state or self._zeros(x))
            return outputs.transpose(0, 1), last
        assert lengths is not None, "two directions need the lengths"
        order = reversal(lengths, x.size(1))
        both = torch.stack([x, take(x, order)]).transpose(1, 2)  # [2 T B I]
        weight, bias = self._both("ih")
        a = torch.matmul(both.flatten(1, 2), weight) + bias
        zeros = tuple(torch.stack([z, z]) for z in self._zeros(x))
        products = [
            _alone(Shared(*self._both("hh"))),
            *(
                _alone(Shared(t.weight.transpose(1, 2), t.bias.unsqueeze(1)))
                for t in self._transitions
            ),
        ]
        gates = self.input_norm(a.view(2, *both.shape[1:3], -1).transpose(0, 1))
        outputs, _ = _run(self._steps(products[0], products[1:], mask), gates, zeros)
        forward, backward = outputs[:, 0].transpose(0, 1), outputs[:, 1].transpose(0, 1)
        final = torch.cat([at_end(forward, lengths), at_end(backward, lengths)], -1)
        return torch.cat([forward, take(backward, order)], -1), (final,)

    def _forward_whole(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Cell]:
        """Each direction as one operation, of any length, for the graph of an encoder; the backward one on reversed
        sentences. Of the last state, only h."""
        lengths = (
            x.new_full((x.size(0),), x.size(1), dtype=torch.int64) if lengths is None else lengths
        )
        order, outputs = reversal(lengths, x.size(1)), list[Tensor]()
        whole = torch.lstm if self.state_parts == 2 else torch.gru
        for direction in range(self.directions):
            blocks = [self.block(name, direction=direction) for name in ("ih", "hh")]
            weights: Any = [weight for weight, _ in blocks] + [bias for _, bias in blocks]
            zeros: Any = tuple(part.unsqueeze(0) for part in self._zeros(x))
            turned = take(x, order) if direction else x
            y = whole(
                turned,
                zeros if len(zeros) == 2 else zeros[0],
                weights,
                True,
                1,
                0.0,
                False,
                False,
                True,
            )[0]
            outputs.append(y)
        final = torch.cat([at_end(y, lengths) for y in outputs], -1)
        outputs[1:] = [take(y, order) for y in outputs[1:]]
        return torch.cat(outputs, -1), (final,)

    def _zeros(self, x: Tensor) -> Cell:
        weight: Tensor = self.rnn.weight_hh_l0  # type: ignore[assignment]
        return tuple(weight.new_zeros(x.size(0), self.size) for _ in range(self.state_parts))

    def _forward_cudnn(
        self, x: Tensor, state: Cell | None, lengths: Tensor | None
    ) -> tuple[Tensor, Cell]:
        initial: Any = None
        if state is not None:
            initial = tuple(part.unsqueeze(0).contiguous() for part in state)
            initial = initial[0] if len(initial) == 1 else initial
        if lengths is None:
            outputs, final = self.rnn(x, initial)
        else:
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            packed, final = self.rnn(packed, initial)
            outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        parts = final if isinstance(final, tuple) else (final,)
        return outputs, tuple(part.transpose(0, 1).flatten(1).to(outputs.dtype) for part in parts)


def reversal(lengths: Tensor, size: int) -> Tensor:
    """[B T] positions that reverse each sentence and leave its padding where it is."""
    positions = torch.arange(size, device=lengths.device)
    reversed_ = lengths.unsqueeze(1) - 1 - positions
    return torch.where(reversed_ >= 0, reversed_, positions)


def take(x: Tensor, order: Tensor) -> Tensor:
    """x [B T H] in another order of its positions, [B T]."""
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def at_end(x: Tensor, lengths: Tensor) -> Tensor:
    """What x [B T H] holds at each sentence's last position."""
    return x.gather(1, (lengths - 1).view(-1, 1, 1).expand(-1, 1, x.size(-1))).squeeze(1)


def _alone(product: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    return lambda h: (product(h),)


def _run(loop: Loop, a: Tensor, state: Cell) -> tuple[Tensor, Cell]:
    """All steps; a: gates of the input, time first; outputs time first."""
    outputs = []
    for a_t in a.unbind(0):
        state = loop.step(a_t, loop.product(state[0])[0], state)
        outputs.append(state[0])
    return torch.stack(outputs), state
