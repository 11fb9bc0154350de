"""Recurrent layers: the loop over time, in one direction or two, around a cell.

    a_t = W_ih x_t + b_ih          gates of the input, for all t at once, outside of the loop
    u_t = W_hh h_{t-1} + b_hh      gates of the state
    h_t = cell(a_t, u_t, h_{t-1})

A cell is a subclass of `Recurrent` in cells/. Padding never enters the backward direction: each
sentence is reversed by itself, so that in both directions the padding comes last, where nothing
reads it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.model.layers.dropout import Dropout
from nmt.model.layers.gate_norm import GateNorm
from nmt.model.layers.loop_products import LoopProduct, Products, fused_linear
from nmt.model.layers.packed import WeightBlock, linear

CellState = tuple[Tensor, ...]
"""State of one layer: (h,) of a GRU, (h, c) of an LSTM."""
DropoutOf = Literal["state", "update"]
"""Target of recurrent dropout: features of the state in the recurrent products, or of the new part
of the state."""


@dataclass(frozen=True)
class Loop:
    """Functions that a loop over time calls at each step.

    products: gates of the state u, and further products with h, from h
    step: next state, from the gates of the input a, the gates of the state u, and the state
    """

    products: Products
    step: Callable[[Tensor, Tensor, CellState], CellState]


class RecurrentWeights(nn.Module):
    """Parameters of a layer, with the names of torch.nn.GRU, for cells that PyTorch does not have.

    gates: G, blocks of the weights
    input_size: features of x
    size: Q, features of h per direction
    directions: 1 or 2
    """

    def __init__(self, gates: int, input_size: int, size: int, directions: int) -> None:
        super().__init__()
        shapes = {
            "weight_ih": (gates * size, input_size),
            "weight_hh": (gates * size, size),
            "bias_ih": (gates * size,),
            "bias_hh": (gates * size,),
        }
        for suffix in ("", "_reverse")[:directions]:
            for name, shape in shapes.items():
                self.register_parameter(f"{name}_l0{suffix}", nn.Parameter(torch.empty(shape)))


class Transition(nn.Module):
    """Further cell of each step, without an input of its own: the gates of its input are a bias.

    gates: G, blocks of the weights
    size: Q, features of h per direction
    directions: 1 or 2
    norm: normalisation of the gates of the state
    """

    def __init__(self, gates: int, size: int, directions: int, norm: nn.Module) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(directions, gates * size, size))
        self.bias = nn.Parameter(torch.zeros(directions, gates * size))
        self.input_bias = nn.Parameter(torch.zeros(directions, gates * size))
        for gate in self.weight.data.flatten(0, 1).split(size):
            nn.init.orthogonal_(gate)
        self.norm = norm

    @property
    def inputs(self) -> Tensor:
        """Gates of the input: [G·Q], or [2 1 G·Q] with two directions."""
        return self.input_bias[0] if len(self.input_bias) == 1 else self.input_bias.unsqueeze(1)


class Recurrent(nn.Module):
    """Base of all recurrent layers. A subclass is one cell: its number of gates and its `cell`.

    On GPUs PyTorch's own layer, if it has the cell, runs the whole sequence (cuDNN). On CPUs, and
    with normalised gates, depth or dropout, the loop does, both directions in the same step.

    input_size: features of x
    hidden_size: features of h per direction, Q
    directions: 1 or 2
    depth: cells one after another in each step, of which only the first has an input (deep
        transition, Pascanu et al. 2014; Miceli Barone et al. 2017)
    dropout: probability of recurrent dropout, with the same mask at all steps of a sentence
    dropout_of: state (Gal & Ghahramani 2016) or update (Semeniuta et al. 2016); what the cell
        carries over stays whole
    """

    gates: ClassVar[int]
    """Number of blocks of the weights, G."""
    state_parts: ClassVar[int] = 1
    """Number of tensors of the state."""
    normalized: ClassVar[bool] = False
    """Whether the gates of input and state are normalised."""
    torch_layer: ClassVar[type[nn.GRU] | type[nn.LSTM] | None] = None
    """PyTorch's layer with this cell, which holds the parameters."""
    torch_function: ClassVar[Callable[..., Any] | None] = None
    """PyTorch's function for a whole sequence."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        directions: int = 1,
        *,
        depth: int = 1,
        dropout: float = 0.0,
        dropout_of: DropoutOf = "state",
    ) -> None:
        super().__init__()
        self.size = hidden_size
        self.directions = directions
        if self.torch_layer is None:
            self.rnn: nn.Module = RecurrentWeights(self.gates, input_size, hidden_size, directions)
        else:
            self.rnn = self.torch_layer(
                input_size, hidden_size, batch_first=True, bidirectional=directions == 2
            )
        self.initialize()
        self.transitions = nn.ModuleList(
            Transition(self.gates, hidden_size, directions, self.gate_norm())
            for _ in range(depth - 1)
        )
        self.input_norm = self.gate_norm()
        self.state_norm = self.gate_norm()
        self.dropout = Dropout(dropout, variational=True)
        self.dropout_of = dropout_of
        self.is_torch_layer = self.torch_layer is not None and not self.normalized and depth == 1

    def cell(
        self, a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None
    ) -> CellState:
        """One step.

        a: gates of the input [… G·Q]
        u: gates of the state [… G·Q]
        state: tensors [… Q], h first
        update_mask: factors of the new part of the state [… Q]
        """
        raise NotImplementedError

    def initialize(self) -> None:
        """Initial parameters: orthogonal for the state, Xavier for the input, gate by gate; biases
        0."""
        for name, parameter in self.rnn.named_parameters():
            for gate in parameter.data.split(self.size):
                if name.startswith("weight_hh"):
                    nn.init.orthogonal_(gate)
                elif name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(gate)
                else:
                    nn.init.zeros_(gate)

    def gate_norm(self) -> nn.Module:
        """Normalisation of the gates of the input or of the state; the identity if they are not
        normalised."""
        if not self.normalized:
            return nn.Identity()
        return GateNorm(self.gates, self.size, self.directions)

    def weight_block(
        self, name: str, columns: slice = slice(None), direction: int = 0
    ) -> WeightBlock:
        """Weight and bias of the input or of the state.

        name: "ih" (input) or "hh" (state)
        columns: part of the weight
        direction: 0 forwards, 1 backwards
        """
        suffix = f"{name}_l0{('', '_reverse')[direction]}"
        weight: Tensor = getattr(self.rnn, f"weight_{suffix}")
        bias: Tensor = getattr(self.rnn, f"bias_{suffix}")
        return weight[:, columns], bias

    def _both_directions(self, name: str) -> tuple[Tensor, Tensor]:
        """Weights [2 K M] and biases [2 1 M] of both directions."""
        weight, bias = self.weight_block(name)
        weight_back, bias_back = self.weight_block(name, direction=1)
        biases = torch.stack([bias, bias_back])  # type: ignore[list-item]
        return torch.stack([weight, weight_back]).transpose(1, 2), biases.unsqueeze(1)

    def mask(self, *rows: int) -> Tensor | None:
        """New mask of recurrent dropout [*rows Q]; None if nothing is dropped."""
        return self.dropout.mask(self.rnn.weight_hh_l0, *rows, self.size)  # type: ignore[arg-type]

    def loop(self, *blocks: WeightBlock, mask: Tensor | None = None) -> Loop:
        """Functions of a loop in one direction. The gates of the input must have passed
        `input_norm`.

        blocks: further weights that multiply h, in the same product as the gates of the state
        mask: mask of recurrent dropout [N Q]
        """
        first = fused_linear(self, "state", self.weight_block("hh"), *blocks)
        deeper = [
            fused_linear(transition, "state", (transition.weight[0], transition.bias[0]))
            for transition in self._transitions
        ]
        return self._loop(first, deeper, mask)

    @property
    def _transitions(self) -> list[Transition]:
        return list(self.transitions)  # type: ignore[arg-type]

    def _loop(self, first: Products, deeper: Sequence[Products], mask: Tensor | None) -> Loop:
        state_mask = mask if self.dropout_of == "state" else None
        update_mask = mask if self.dropout_of == "update" else None

        def masked(h: Tensor) -> Tensor:
            return h if state_mask is None else h * state_mask

        def step(a: Tensor, u: Tensor, state: CellState) -> CellState:
            state = self.cell(a, self.state_norm(u), state, update_mask)
            for transition, products in zip(self._transitions, deeper, strict=True):
                u = products(masked(state[0]))[0]
                a = transition.inputs.expand_as(u)
                state = self.cell(a, transition.norm(u), state, update_mask)
            return state

        return Loop(first if state_mask is None else lambda h: first(masked(h)), step)

    def forward(
        self,
        x: Float[Tensor, "B T I"],
        state: CellState | None = None,
        lengths: Int[Tensor, " B"] | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Float[Tensor, "B T H"], CellState]:
        """Outputs of all positions, and the state after each sentence's last token.

        x: inputs
        state: initial state; zeros if None
        lengths: tokens of each sentence, at least 1; needed for two directions, without it every
            position counts
        mask: mask of recurrent dropout; if None, a new one is drawn where needed

        Returns outputs [B T directions·Q], and tensors [B directions·Q] of the state.
        """
        batch, steps = x.shape[:2]
        if mask is None:
            mask = self.mask(batch) if self.directions == 1 else self.mask(2, batch)
        if x.is_cuda and self.is_torch_layer and mask is None:
            return self._forward_cudnn(x, state, lengths)
        if torch.onnx.is_in_onnx_export() and steps != 1:
            return self._forward_onnx(x, lengths)
        if self.directions == 1:
            a = self.input_norm(linear(self, "input", x, self.weight_block("ih")))  # [B, T, G·Q]
            outputs, state = _run(self.loop(mask=mask), a.transpose(0, 1), state or self._zeros(x))
            return outputs.transpose(0, 1), state
        assert lengths is not None, "two directions need the lengths"
        return self._forward_both(x, lengths, mask)

    def _forward_both(
        self, x: Tensor, lengths: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, CellState]:
        """Both directions in one loop: the tensors of a step have the directions first, [2 B …]."""
        batch, steps, features = x.shape
        order = reversal(lengths, steps)  # [B, T]
        both = torch.stack([x, take(x, order)]).transpose(1, 2)  # [2, T, B, I]
        weight, bias = self._both_directions("ih")
        a = torch.matmul(both.reshape(2, steps * batch, features), weight) + bias  # [2, T·B, G·Q]
        a = a.view(2, steps, batch, -1).transpose(0, 1)  # [T, 2, B, G·Q]
        first = _alone(LoopProduct(*self._both_directions("hh")))
        deeper = [
            _alone(LoopProduct(t.weight.transpose(1, 2), t.bias.unsqueeze(1)))
            for t in self._transitions
        ]
        zeros = tuple(torch.stack([part, part]) for part in self._zeros(x))  # [2, B, Q]
        outputs, _ = _run(self._loop(first, deeper, mask), self.input_norm(a), zeros)
        forward = outputs[:, 0].transpose(0, 1)  # [B, T, Q]
        backward = outputs[:, 1].transpose(0, 1)  # [B, T, Q], in reversed order
        final = torch.cat([at_end(forward, lengths), at_end(backward, lengths)], -1)  # [B, 2·Q]
        return torch.cat([forward, take(backward, order)], -1), (final,)

    def _forward_onnx(self, x: Tensor, lengths: Tensor | None) -> tuple[Tensor, CellState]:
        """Each direction as one operation, of any length, for the graph of an encoder; of the last
        state, only h."""
        assert self.torch_function is not None, "exporting refuses other cells"
        if lengths is None:
            lengths = x.new_full((x.size(0),), x.size(1), dtype=torch.int64)
        order = reversal(lengths, x.size(1))  # [B, T]
        outputs = []
        finals = []
        for direction in range(self.directions):
            input_block = self.weight_block("ih", direction=direction)
            state_block = self.weight_block("hh", direction=direction)
            weights = [input_block[0], state_block[0], input_block[1], state_block[1]]
            zeros: Any = tuple(part.unsqueeze(0) for part in self._zeros(x))
            y = self.torch_function(
                take(x, order) if direction else x,
                zeros if len(zeros) == 2 else zeros[0],
                weights,
                True,  # has biases
                1,  # layers
                0.0,  # dropout
                False,  # training
                False,  # bidirectional
                True,  # batch first
            )[0]  # [B, T, Q]
            finals.append(at_end(y, lengths))
            outputs.append(take(y, order) if direction else y)
        return torch.cat(outputs, -1), (torch.cat(finals, -1),)

    def _zeros(self, x: Tensor) -> CellState:
        weight: Tensor = self.rnn.weight_hh_l0  # type: ignore[assignment]
        return tuple(weight.new_zeros(x.size(0), self.size) for _ in range(self.state_parts))

    def _forward_cudnn(
        self, x: Tensor, state: CellState | None, lengths: Tensor | None
    ) -> tuple[Tensor, CellState]:
        initial: Any = None
        if state is not None:
            initial = tuple(part.unsqueeze(0).contiguous() for part in state)  # [1, B, Q]
            initial = initial[0] if len(initial) == 1 else initial
        if lengths is None:
            outputs, final = self.rnn(x, initial)
        else:
            # PyTorch takes these lengths from the CPU alone.
            packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
            packed, final = self.rnn(packed, initial)
            outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.size(1))
        parts = final if isinstance(final, tuple) else (final,)  # [directions, B, Q]
        return outputs, tuple(part.transpose(0, 1).flatten(1).to(outputs.dtype) for part in parts)


def reversal(lengths: Int[Tensor, " B"], size: int) -> Int[Tensor, "B T"]:
    """Positions that reverse each sentence and leave its padding where it is.

    lengths: tokens of each sentence
    size: T, with padding
    """
    positions = torch.arange(size, device=lengths.device)  # [T]
    reversed_positions = lengths.unsqueeze(1) - 1 - positions  # [B, T], negative at padding
    return torch.where(reversed_positions >= 0, reversed_positions, positions)


def take(x: Float[Tensor, "B T H"], order: Int[Tensor, "B T"]) -> Float[Tensor, "B T H"]:
    """Vectors in another order of their positions.

    x: vectors
    order: position of each result
    """
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def at_end(x: Float[Tensor, "B T H"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B H"]:
    """Vector at each sentence's last position.

    x: vectors
    lengths: tokens of each sentence
    """
    last = (lengths - 1).view(-1, 1, 1)  # [B, 1, 1]
    return x.gather(1, last.expand(-1, 1, x.size(-1))).squeeze(1)


def _alone(product: Callable[[Tensor], Tensor]) -> Products:
    return lambda h: (product(h),)


def _run(loop: Loop, a: Tensor, state: CellState) -> tuple[Tensor, CellState]:
    """All steps: outputs [T … Q] and the last state, from the gates of the input [T … G·Q]."""
    if len(a) == 1:  # a step of a search
        state = loop.step(a[0], loop.products(state[0])[0], state)
        return state[0].unsqueeze(0), state
    outputs = []
    for a_t in a.unbind(0):
        u_t = loop.products(state[0])[0]
        state = loop.step(a_t, u_t, state)
        outputs.append(state[0])
    return torch.stack(outputs), state
