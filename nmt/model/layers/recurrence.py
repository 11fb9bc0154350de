"""Recurrent layers: the loop over time around a cell, in one direction or two.

    a_t = W_ih x_t + b_ih          input pre-activations of the gates, for all t before the loop
    u_t = W_hh h_{t-1} + b_hh      state pre-activations of the gates
    h_t = cell(a_t, u_t, h_{t-1})

x_t is the input and h_t the state at time t. Each cell is a subclass of `Recurrent` in cells/.

The backward direction reverses each sentence separately and keeps its padding at the end. Padding
therefore affects no state of a sentence in either direction.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.model.layers.dropout import Dropout
from nmt.model.layers.gate_norm import GateNorm
from nmt.model.layers.loop_products import LoopProduct, Products, fused_linear
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import WeightBlock, linear

# Each direction of a layer has its own call, so the weights of a call are not contiguous. PyTorch
# copies them in each call, which takes little time.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous")

CellState = tuple[Tensor, ...]
"""Type of states of a recurrent layer: (h,) for a GRU, (h, c) for an LSTM."""
DropoutOf = Literal["state", "update"]
"""Target of recurrent dropout: the state before the recurrent matrix multiplication ("state"), or
the candidate state that each step adds ("update"; n of a GRU, g of an LSTM)."""


@dataclass(frozen=True)
class Loop:
    """Functions that a loop over time calls at each step.

    products: function of the state that returns a tuple: the state pre-activations of the gates,
        then the products of the state and further weight blocks
    step: function (input pre-activations, state pre-activations, state) → next state
    """

    products: Products
    step: Callable[[Tensor, Tensor, CellState], CellState]


class RecurrentWeights(nn.Module):
    """Parameters of a recurrent layer whose cell PyTorch lacks, named as in torch.nn.GRU.

    gates: G, number of gates of the cell
    input_size: number of features of the input
    size: Q, number of units per direction
    directions: number of directions, 1 or 2
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
    """Additional recurrent cell within a time step, without an input. Its input pre-activations are
    a learnt bias.

    gates: G, number of gates of the cell
    size: Q, number of units per direction
    directions: number of directions, 1 or 2
    norm: layer that normalises the state pre-activations
    """

    def __init__(self, gates: int, size: int, directions: int, norm: nn.Module) -> None:
        super().__init__()
        # One matrix for each direction.
        self.weight = nn.Parameter(torch.empty(directions, gates * size, size))
        self.bias = nn.Parameter(torch.zeros(directions, gates * size))
        self.input_bias = nn.Parameter(torch.zeros(directions, gates * size))
        for gate in self.weight.data.flatten(0, 1).split(size):
            nn.init.orthogonal_(gate)
        self.norm = norm

    @property
    def inputs(self) -> Tensor:
        """Learnt bias that replaces the input pre-activations of a cell without an input: [G·Q], or
        [2, 1, G·Q] with two directions."""
        return self.input_bias[0] if len(self.input_bias) == 1 else self.input_bias.unsqueeze(1)


class Recurrent(nn.Module):
    """Base class of recurrent layers. Each subclass defines one cell: its number of gates and the
    method `cell`.

    On GPUs, PyTorch's function for the cell, if there is one, computes the whole sequence (cuDNN).
    On CPUs, the C++ extension computes a GRU (cells/gru.py). A Python loop over time steps is used
    for all other cells on CPUs and, on any device, for layer-normalised gates, several cells per
    step or recurrent dropout. The loop computes both directions at once.

    input_size: number of features of the input
    hidden_size: Q, number of units per direction
    directions: number of directions, 1 or 2
    depth: number of consecutive cells in each time step; only the first cell reads the input (deep
        transition, Pascanu et al. 2014; Miceli Barone et al. 2017)
    dropout: probability of recurrent dropout; all time steps of a sentence share one mask
    dropout_of: target of recurrent dropout, state (Gal & Ghahramani 2016) or update (Semeniuta et
        al. 2016)
    """

    gates: ClassVar[int]
    """Number G of gates of the recurrent cell."""
    state_parts: ClassVar[int] = 1
    """Number of tensors in the state of the recurrent cell: 1 for a GRU, 2 for an LSTM."""
    normalized: ClassVar[bool] = False
    """Whether the input and state pre-activations of each gate are layer-normalised."""
    torch_layer: ClassVar[type[nn.GRU] | type[nn.LSTM] | None] = None
    """PyTorch class of the recurrent layer that owns the parameters; None if PyTorch lacks the
    cell."""
    torch_function: ClassVar[Callable[..., Any] | None] = None
    """PyTorch function that runs the layer over a sequence; None if PyTorch lacks the cell."""

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
        self.transitions: Sequence[Transition] = nn.ModuleList(  # type: ignore[assignment]
            Transition(self.gates, hidden_size, directions, self.gate_norm())
            for _ in range(depth - 1)
        )
        self.input_norm = self.gate_norm()
        self.state_norm = self.gate_norm()
        self.dropout = Dropout(dropout, variational=True)
        self.dropout_of = dropout_of
        # A subclass with a `cell` of its own must not use the PyTorch layer that it inherits.
        owner = next(parent for parent in type(self).__mro__ if "cell" in vars(parent))
        has_torch_cell = vars(owner).get("torch_layer") is not None
        self.is_torch_layer = has_torch_cell and not self.normalized and depth == 1

    def cell(
        self, a: Tensor, u: Tensor, state: CellState, update_mask: Tensor | None = None
    ) -> CellState:
        """Returns the state of the cell after one time step.

        a: input pre-activations of the gates, W_ih x + b_ih [… G·Q]
        u: state pre-activations of the gates, W_hh h + b_hh [… G·Q]
        state: state before the step, tensors [… Q], h first
        update_mask: dropout mask of the candidate state [… Q]; None without dropout
        """
        raise NotImplementedError

    def initialize(self) -> None:
        """Initialises the weights gate by gate: orthogonal matrices for the state, Xavier-uniform
        matrices for the input, and zero biases."""
        for name, parameter in self.rnn.named_parameters():
            for gate in parameter.data.split(self.size):
                if name.startswith("weight_hh"):
                    nn.init.orthogonal_(gate)
                elif name.startswith("weight_ih"):
                    nn.init.xavier_uniform_(gate)
                else:
                    nn.init.zeros_(gate)

    def gate_norm(self) -> nn.Module:
        """Returns a layer that normalises the gates; the identity if `normalized` is False."""
        if not self.normalized:
            return nn.Identity()
        return GateNorm(self.gates, self.size, self.directions)

    def weight_block(
        self, name: str, columns: slice = slice(None), direction: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Returns a weight matrix of the layer and its bias.

        name: "ih" for the multiplication of the input, "hh" for that of the state
        columns: range of the weight's columns to return
        direction: 0 for forwards, 1 for backwards
        """
        suffix = f"{name}_l0{('', '_reverse')[direction]}"
        weight: Tensor = getattr(self.rnn, f"weight_{suffix}")
        bias: Tensor = getattr(self.rnn, f"bias_{suffix}")
        return weight[:, columns], bias

    def _both_directions(self, name: str) -> tuple[Tensor, Tensor]:
        """Returns the weights [2, K, M] and biases [2, 1, M] of both directions, stacked."""
        blocks = [self.weight_block(name, direction=direction) for direction in (0, 1)]
        weights, biases = map(torch.stack, zip(*blocks, strict=True))
        return weights.transpose(1, 2), biases.unsqueeze(1)

    def mask(self, *rows: int) -> Tensor | None:
        """Returns a new mask of recurrent dropout [*rows, Q]; None if the layer has no dropout."""
        return self.dropout.mask(self.rnn.weight_hh_l0, *rows, self.size)  # type: ignore[arg-type]

    def loop(self, *blocks: WeightBlock, mask: Tensor | None = None) -> Loop:
        """Returns the two functions that a loop over time calls at each step: the matrix products
        of the state, and the cell. The caller must apply `input_norm` to the input pre-activations
        before each step.

        blocks: further weight blocks to multiply by the state, fused with the weights of the state
            gates
        mask: mask of recurrent dropout [N, Q]; None without dropout
        """
        first = fused_linear(self, "state", self.weight_block("hh"), *blocks)
        deeper = [
            fused_linear(transition, "state", (transition.weight[0], transition.bias[0]))
            for transition in self.transitions
        ]
        return self._loop(first, deeper, mask)

    def _loop(self, first: Products, deeper: Sequence[Products], mask: Tensor | None) -> Loop:
        state_mask = mask if self.dropout_of == "state" else None
        update_mask = mask if self.dropout_of == "update" else None

        def masked(h: Tensor) -> Tensor:
            return h if state_mask is None else h * state_mask

        def step(a: Tensor, u: Tensor, state: CellState) -> CellState:
            state = self.cell(a, self.state_norm(u), state, update_mask)
            for transition, products in zip(self.transitions, deeper, strict=True):
                u = products(masked(state[0]))[0]  # [… G·Q]
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
    ) -> tuple[Float[Tensor, "B T X"], CellState]:
        """Runs the layer over the sentences of a batch.

        x: input vectors
        state: initial state; None for zeros
        lengths: number of tokens of each sentence, at least 1; layers with one direction also
            accept None for sentences without padding
        mask: mask of recurrent dropout; None to draw a new mask if the layer has dropout

        Returns the outputs [B, T, directions·Q], and the state after the last token of each
        sentence as tensors [B, directions·Q]; with `lengths`, only h and not the c of an LSTM.
        """
        batch, steps = x.shape[:2]
        if mask is None:
            mask = self.mask(batch) if self.directions == 1 else self.mask(2, batch)
        is_export = torch.onnx.is_in_onnx_export() and steps != 1
        if is_export or (x.is_cuda and self.is_torch_layer and mask is None):
            # Autocast would compute PyTorch's layers in float16, even for bfloat16, and small
            # gradients would become 0.
            is_bfloat16 = x.is_cuda and torch.get_autocast_dtype("cuda") == torch.bfloat16
            if is_bfloat16 and torch.is_autocast_enabled("cuda"):
                with torch.autocast("cuda", enabled=False):
                    return self._forward_torch(to_float(x), state, lengths)
            return self._forward_torch(x, state, lengths)
        if self.directions == 1:
            a = self.input_norm(linear(self, "input", x, self.weight_block("ih")))  # [B, T, G·Q]
            outputs, last = self._over_time(a, state or self._zeros(x), mask)
            return outputs, last if lengths is None else (at_end(outputs, lengths),)
        assert lengths is not None, (
            "a recurrent layer with two directions needs the sentence lengths"
        )
        return self._forward_both(x, lengths, mask)

    def _over_time(
        self, a: Tensor, state: CellState, mask: Tensor | None
    ) -> tuple[Tensor, CellState]:
        """Runs a layer with one direction over time, given the input pre-activations
        [B, T, G·Q]. Returns the outputs [B, T, Q] and the last state."""
        outputs, state = _run(self.loop(mask=mask), a.transpose(0, 1), state)
        return outputs.transpose(0, 1), state

    def _forward_both(
        self, x: Tensor, lengths: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, CellState]:
        """Runs both directions in one loop over time, with tensors [2, B, …] at each step."""
        batch, steps, features = x.shape
        order = reversal(lengths, steps)  # [B, T]
        both = torch.stack([x, take(x, order)]).transpose(1, 2)  # [2, T, B, I]
        weight, bias = self._both_directions("ih")  # [2, I, G·Q], [2, 1, G·Q]
        a = torch.matmul(both.reshape(2, steps * batch, features), weight) + bias  # [2, T·B, G·Q]
        a = a.view(2, steps, batch, -1).transpose(0, 1)  # [T, 2, B, G·Q]
        first = _alone(LoopProduct(*self._both_directions("hh")))
        deeper = [
            _alone(LoopProduct(t.weight.transpose(1, 2), t.bias.unsqueeze(1)))
            for t in self.transitions
        ]
        zeros = tuple(torch.stack([part, part]) for part in self._zeros(x))  # [2, B, Q]
        outputs, _ = _run(self._loop(first, deeper, mask), self.input_norm(a), zeros)
        forward = outputs[:, 0].transpose(0, 1)  # [B, T, Q]
        backward = outputs[:, 1].transpose(0, 1)  # [B, T, Q], in reversed order
        final = torch.cat([at_end(forward, lengths), at_end(backward, lengths)], -1)  # [B, 2·Q]
        return torch.cat([forward, take(backward, order)], -1), (final,)

    def _forward_torch(
        self, x: Tensor, state: CellState | None, lengths: Tensor | None
    ) -> tuple[Tensor, CellState]:
        """Runs each direction as a single call of PyTorch's recurrent operator, which is cuDNN on
        GPUs and one operator in ONNX.

        Sentences are padded and not packed, because PyTorch needs the lengths of packed sentences
        on the CPU, and cuDNN has no fast algorithm for them. If `lengths` is not None, the returned
        state contains h only, not the c of an LSTM.
        """
        assert self.torch_function is not None, (
            "ONNX export supports only the recurrent cells of PyTorch (GRU, LSTM)"
        )
        order = None if lengths is None else reversal(lengths, x.size(1))  # [B, T]
        initial: Any = tuple(part.unsqueeze(0).contiguous() for part in state or self._zeros(x))
        outputs = []
        finals = []
        for direction in range(self.directions):
            input_block = self.weight_block("ih", direction=direction)
            state_block = self.weight_block("hh", direction=direction)
            y, *final = self.torch_function(
                x if order is None or not direction else take(x, order),
                initial if len(initial) == 2 else initial[0],
                [input_block[0], state_block[0], input_block[1], state_block[1]],
                True,  # argument: has biases
                1,  # argument: number of layers
                0.0,  # argument: dropout probability
                x.is_cuda and torch.is_grad_enabled(),  # argument: prepare for a backward pass
                False,  # argument: bidirectional
                True,  # argument: batch first
            )  # y [B, T, Q], parts of the last state [1, B, Q]
            last_state = [part.squeeze(0).to(y.dtype) for part in final]  # [B, Q] each
            finals.append(last_state if lengths is None else [at_end(y, lengths)])
            outputs.append(y if order is None or not direction else take(y, order))
        last = tuple(torch.cat(parts, -1) for parts in zip(*finals, strict=True))
        return torch.cat(outputs, -1), last

    def _zeros(self, x: Tensor) -> CellState:
        weight: Tensor = self.rnn.weight_hh_l0  # type: ignore[assignment]
        return tuple(weight.new_zeros(x.size(0), self.size) for _ in range(self.state_parts))


def reversal(lengths: Int[Tensor, " B"], size: int) -> Int[Tensor, "B T"]:
    """Returns the indices that reverse the tokens of each sentence and keep its padding in place.

    lengths: number of tokens of each sentence
    size: T, number of positions, padding included
    """
    positions = torch.arange(size, device=lengths.device)  # [T]
    reversed_positions = lengths.unsqueeze(1) - 1 - positions  # [B, T], negative at padding
    return torch.where(reversed_positions >= 0, reversed_positions, positions)


def take(x: Float[Tensor, "B T X"], order: Int[Tensor, "B T"]) -> Float[Tensor, "B T X"]:
    """Reorders the vectors of each sentence by position.

    x: vectors at the positions of each sentence
    order: index in x of the vector at each position of the result
    """
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.size(-1)))


def at_end(x: Float[Tensor, "B T X"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B X"]:
    """Returns the vector at the last token of each sentence.

    x: vectors at the positions of each sentence
    lengths: number of tokens of each sentence
    """
    last = (lengths - 1).view(-1, 1, 1)  # [B, 1, 1]
    return x.gather(1, last.expand(-1, 1, x.size(-1))).squeeze(1)


def _alone(product: Callable[[Tensor], Tensor]) -> Products:
    return lambda h: (product(h),)


def _run(loop: Loop, a: Tensor, state: CellState) -> tuple[Tensor, CellState]:
    """Runs a recurrent layer's loop over time, given the input pre-activations [T, …, G·Q].
    Returns the outputs [T, …, Q] and the last state."""
    if len(a) == 1:  # a single decoder step, as in a search
        state = loop.step(a[0], loop.products(state[0])[0], state)
        return state[0].unsqueeze(0), state
    outputs = []
    for a_t in a.unbind(0):
        u_t = loop.products(state[0])[0]
        state = loop.step(a_t, u_t, state)
        outputs.append(state[0])
    return torch.stack(outputs), state
