"""Decoders: recurrent networks over the target tokens that read the encoder memory. Each decoder
is one file in this folder and one YAML file in conf/decoder.

`forward` computes T decoder steps: all steps of a sentence in training, a single step in
generation. A decoder that attends within its recurrence has a loop over time. The loop contains
only the recurrent computation; everything else is computed outside of the loop, for all T steps at
once. The Bahdanau decoder and the conditional decoder share the loop in attending.py.

Modules in reading order: this file, bridge, luong, attention_step, attending, bahdanau,
conditional, luong_feed, fixed, stack, readout.
"""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Encoded, Layout, Prepared, State
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Depth, Fraction, Width
from nmt.model.attention.layer import Attention
from nmt.model.decoder.bridge import Bridge, BridgeName
from nmt.model.decoder.stack import Stack
from nmt.model.layers.cells import CellName, cell_class, recurrent
from nmt.model.layers.dropout import Dropout, idle_layers
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import linear
from nmt.model.layers.recurrence import DropoutOf, Recurrent


class Decoder(nn.Module):
    """Base class of decoders, with their layer sizes, bridge and dropout.

    attention: attention over the encoder memory; None for decoders without attention
    embedding_size: E, length of a target embedding
    memory_size: M, number of features of an annotation
    hidden_size: Q, number of units of each layer
    readout_size: D, number of features of the readout
    num_layers: number of stacked layers
    cell: name of the recurrent cell: gru, lstm, norm_gru or norm_lstm
    transition_depth: number of consecutive cells in each time step
    residual: whether each layer except the first adds its input to its output
    bridge: equation of the initial state: tanh, linear, mean, last or none
    dropout: dropout probability between layers
    variational_dropout: whether all time steps of a sentence share one dropout mask
    recurrent_dropout: probability of recurrent dropout, 0 to 1
    recurrent_dropout_of: target of recurrent dropout: state or update
    layer_norm: whether layer normalisation is applied to the readout
    context_gate: whether a gate computed from the decoder state scales the context

    Raises ValueError if `attention` is missing for a decoder that attends, or set for a decoder
    that does not attend.
    """

    attends: ClassVar[bool] = True
    """Whether decoders of this class use attention."""

    def __init__(
        self,
        *,
        attention: Attention | None,
        embedding_size: int,
        memory_size: int,
        hidden_size: Width,
        readout_size: Width,
        num_layers: Depth = 1,
        cell: CellName = "gru",
        transition_depth: Depth = 1,
        residual: bool = False,
        bridge: BridgeName = "tanh",
        dropout: Fraction = 0.0,
        variational_dropout: bool = False,
        recurrent_dropout: Fraction = 0.0,
        recurrent_dropout_of: DropoutOf = "state",
        layer_norm: bool = False,
        context_gate: bool = False,
    ) -> None:
        super().__init__()
        self._check_attention(attention, context_gate)
        self.cell_name = cell
        self.embedding_size = embedding_size
        self.memory_size = memory_size
        self.hidden_size = hidden_size
        self.readout_size = readout_size
        self.num_layers = num_layers
        # None if `attends` is False
        self.attention: Attention = attention  # type: ignore[assignment]
        self.transition_depth = transition_depth
        self.residual = residual
        state_parts = cell_class(cell).state_parts
        self.bridge = Bridge(bridge, memory_size, hidden_size, num_layers, state_parts)
        self.dropout = Dropout(dropout, variational_dropout)
        self.recurrent_dropout = Dropout(recurrent_dropout, variational=True)
        self.recurrent_dropout_of = recurrent_dropout_of
        self.norm = nn.LayerNorm(readout_size) if layer_norm else nn.Identity()
        self.make_layers()

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the configuration keys that have no effect in this run, each with the reason,
        for example that the network has a single layer, or that dropout is 0."""
        return idle_layers(run, "decoder")

    @classmethod
    def _check_attention(cls, attention: Attention | None, context_gate: bool) -> None:
        name = cls.__module__.rpartition(".")[2]
        if cls.attends and attention is None:
            raise ValueError(
                f"decoder={name} needs an attention score function: choose attention=concat, "
                "general or dot"
            )
        if attention is not None and not cls.attends:
            raise ValueError(
                f"decoder={name} has no attention, but an attention score function is set: "
                "add attention=none"
            )
        if context_gate and attention is None:
            raise ValueError(
                "decoder.context_gate=true needs attention: set decoder.context_gate=false"
            )

    def make_layers(self) -> None:
        """Creates the layers of the decoder; called by the constructor once all sizes are set."""
        raise NotImplementedError

    def recurrent(self, input_size: int, depth: int | None = None) -> Recurrent:
        """Creates a recurrent layer with the decoder's cell and recurrent dropout.

        input_size: number of features of the layer's input
        depth: number of cells in each time step; None uses `transition_depth`
        """
        return recurrent(
            self.cell_name,
            input_size,
            self.hidden_size,
            depth=depth or self.transition_depth,
            dropout=self.recurrent_dropout.p,
            dropout_of=self.recurrent_dropout_of,
        )

    def stack(self, input_size: int, first: int = 0) -> Stack:
        """Creates stacked recurrent layers.

        input_size: number of input features of layer 0 of the decoder
        first: index of the lowest layer to create; lower layers are left out
        """
        sizes = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        layers = [self.recurrent(size) for size in sizes[first:]]
        return Stack(layers, self.dropout, self.residual, first)

    def prepare(self, encoded: Encoded) -> Prepared:
        """Returns the encoder memory of B sources together with the values that are computed once
        per source, such as the attention keys.

        encoded: output of the encoder
        """
        memory = self.attention.prepare(encoded)
        return replace(
            memory,
            projected_values=self.project(memory),
            decoder_init=self.bridge.summary(encoded),  # [B, M]
        )

    def project(self, memory: Prepared) -> Float[Tensor, "B HS G"]:
        """Returns the memory values that attention sums. If the decoder multiplies the context by a
        matrix in its loop over time, the values are multiplied by this matrix in advance, outside
        of the loop. Otherwise, the values are returned unchanged.

        memory: prepared encoder memory of the sentences
        """
        return memory.values

    def multiply_values(
        self, memory: Prepared, weight: Float[Tensor, "G M"]
    ) -> Float[Tensor, "B HS G"]:
        """Multiplies the memory values of all heads by the same matrix.

        memory: prepared encoder memory of the sentences
        weight: matrix to multiply by, with G output features
        """
        return to_float(linear(self, "inputs", memory.values, (weight, None)))

    def initial(self, memory: Prepared) -> State:
        """Returns the decoder state before the first token, with one row per sentence. In
        training, the state contains newly drawn dropout masks.

        memory: prepared encoder memory of the sentences
        """
        cells = self.bridge.states(memory.decoder_init)
        masks = self.masks(cells[0][0])
        attention = (
            self.attention.initial_attention_state(memory, memory.mask.size(0))
            if self.attends
            else ()
        )
        return State(cells=cells, attention=attention, masks=masks)

    def masks(self, like: Float[Tensor, "N Q"]) -> Mapping[str, Tensor]:
        """Returns new dropout masks by name: "between i" for the input of layer i, "inside i" for
        the recurrent dropout of layer i.

        like: tensor with the rows, dtype and device of the masks
        """
        masks: dict[str, Tensor | None] = {}
        for i in range(self.num_layers):
            if i:
                masks[f"between {i}"] = self.dropout.mask(like, len(like), 1, self.hidden_size)
            masks[f"inside {i}"] = self.recurrent_dropout.mask(like, len(like), self.hidden_size)
        return {name: mask for name, mask in masks.items() if mask is not None}

    @classmethod
    def check_forward(cls) -> None:
        """Raises ValueError if the method `forward` of this decoder class lacks a parameter of
        `Decoder.forward`."""
        needed = inspect.signature(Decoder.forward).parameters
        missing = [name for name in needed if name not in inspect.signature(cls.forward).parameters]
        if missing:
            raise ValueError(
                f"decoder={cls.__name__}: `forward` must have the parameters "
                f"{', '.join(needed)}; missing: {', '.join(missing)}"
            )

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        """Computes the readouts of T decoder steps. The readout of step t depends on the inputs up
        to step t, the initial state and the memory.

        embedded: embeddings of the input tokens, which precede the tokens to predict
        state: decoder state before the first step
        memory: prepared encoder memory of the sentences
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        raise NotImplementedError

    def output(
        self,
        readout: Float[Tensor, "N T D"],
        state: State,
        weights: Float[Tensor, "N T HS"] | None = None,
    ) -> DecoderOutput:
        """Returns the decoder output, with layer-normalised readouts and the attention weights
        split by head.

        readout: readouts of the decoder steps
        state: decoder state after the last step
        weights: attention weights of all heads; None without attention
        """
        readout = self.norm(readout)
        if weights is None:
            return DecoderOutput(readout=readout, weights=None, state=state)
        return DecoderOutput(
            readout=readout,
            weights=self.attention.mean_over_heads(weights),
            state=state,
            heads=self.attention.by_head(weights),
        )


BASE = Decoder
"""Base class that every decoder in a configuration must extend."""
