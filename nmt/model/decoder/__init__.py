"""Decoders: recurrences over the target words that read the memory.

`forward` serves both training (the whole sentence at once) and generation (T = 1, with the state of
the step before). A decoder that recurs through attention has a loop over time. The loop contains
only the recurrent part; everything else is computed outside of it, for all T at once. A decoder is
one file here and one YAML in conf/decoder.

Read: this file, bridge, luong, attention_step, attending, bahdanau, conditional, luong_feed, fixed,
    stack, readout.
"""

from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import DecoderOutput, Encoded, Layout, Prepared, State
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Depth, Fraction, Width
from nmt.model.attention import Attention
from nmt.model.decoder.bridge import Bridge, BridgeName
from nmt.model.decoder.stack import Stack
from nmt.model.layers.cells import CellName, cell_class, recurrent
from nmt.model.layers.dropout import Dropout, idle_layers
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import linear
from nmt.model.layers.recurrence import DropoutOf, Recurrent


class Decoder(nn.Module):
    """Base of all decoders: sizes, the bridge from the encoder, dropout.

    attention: attention over the memory (None for decoders without)
    embedding_size: E, features of a target word
    memory_size: M, features of an annotation
    hidden_size: Q, units of each layer
    readout_size: D, features of the readout
    num_layers: layers on top of one another
    cell: recurrent cell, see nmt/model/layers/cells
    transition_depth: cells one after another in each step
    residual: each layer but the first adds its input to its output
    bridge: makes the first state, see bridge.py
    dropout: probability of dropout between layers
    variational_dropout: the same features are dropped at every step
    recurrent_dropout, recurrent_dropout_of: dropout inside of the layers, see `Recurrent`
    layer_norm: normalises the readout
    context_gate: gate of the context, see nmt/model/attention

    Raises ValueError if a score is missing or superfluous.
    """

    attends: ClassVar[bool] = True

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
        # None where `attends` is False
        self.attention: Attention = attention  # type: ignore[assignment]
        if context_gate:
            self.attention.add_gate(hidden_size)
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
        """Keys that need more than one layer, or dropout."""
        return idle_layers(run, "decoder")

    @classmethod
    def _check_attention(cls, attention: Attention | None, context_gate: bool) -> None:
        name = cls.__name__.lower()
        if cls.attends and attention is None:
            raise ValueError(
                f"decoder: {name} needs an attention score: choose attention=concat, general, dot …"
            )
        if attention is not None and not cls.attends:
            raise ValueError(
                f"decoder: {name} uses no attention, yet a score is given: add attention=none"
            )
        if context_gate and attention is None:
            raise ValueError(
                "decoder.context_gate: there is no context without attention; set it to false"
            )

    def make_layers(self) -> None:
        """Creates the layers of a particular decoder, from the sizes above."""
        raise NotImplementedError

    def recurrent(self, input_size: int, depth: int | None = None) -> Recurrent:
        """A layer with this decoder's cell and recurrent dropout.

        input_size: features of its input
        depth: cells in each step; None: `transition_depth`
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
        """Layers on top of one another.

        input_size: features of the input of layer 0
        first: number of the lowest of the layers in the whole decoder
        """
        sizes = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        layers = [self.recurrent(size) for size in sizes[first:]]
        return Stack(layers, self.dropout, self.residual, first)

    def prepare(self, encoded: Encoded) -> Prepared:
        """Memory of B sources: all that the decoder needs once per source.

        encoded: output of the encoder
        """
        decoder_init = self.bridge.input(encoded)  # [B, M]
        memory = self.attention.prepare(encoded)
        return Prepared(
            encoded=encoded,
            keys=memory.keys,
            values=memory.values,
            projected_values=self.project(memory),
            decoder_init=decoder_init,
        )

    def project(self, memory: Prepared) -> Float[Tensor, "B S HG"]:
        """Values multiplied by the matrix of the context in a loop.

        Decoders without such a loop use the values themselves.

        memory: memory of the sentences
        """
        return memory.values

    def multiply_values(
        self, memory: Prepared, weight: Float[Tensor, "G M"]
    ) -> Float[Tensor, "B S HG"]:
        """Values of each head multiplied by a matrix.

        memory: memory of the sentences
        weight: the matrix
        """
        by_head = memory.values.unflatten(-1, (memory.heads, -1))  # [B, S, H, M]
        return to_float(linear(self, "inputs", by_head, (weight, None)).flatten(-2))

    def initial(self, memory: Prepared) -> State:
        """State before the first word, one row per sentence; in training with new dropout masks.

        memory: memory of the sentences
        """
        cells = self.bridge.states(memory.decoder_init)
        masks = self.masks(cells[0][0])
        if not self.attends:
            return State(cells=cells, masks=masks)
        attention = self.attention.initial_attention_state(memory, memory.mask.size(0))
        return State(cells=cells, attention=attention, masks=masks)

    def masks(self, like: Float[Tensor, "N Q"]) -> Mapping[str, Tensor]:
        """New dropout masks: "between i" of layer i's input, "inside i" of its recurrent products.

        like: tensor that has the rows, the type and the device of the masks
        """
        masks: dict[str, Tensor | None] = {}
        for i in range(self.num_layers):
            if i:
                masks[f"between {i}"] = self.dropout.mask(like, len(like), 1, self.hidden_size)
            masks[f"inside {i}"] = self.recurrent_dropout.mask(like, len(like), self.hidden_size)
        return {name: mask for name, mask in masks.items() if mask is not None}

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        """Readouts for T more words: position t sees embedded[:, :t+1], the state and the memory.

        embedded: vectors of the words *before* those to predict
        state: state before the first of them
        memory: memory of the sentences
        layout: rows of a search (None: equally many rows per sentence)
        """
        raise NotImplementedError

    def output(
        self,
        readout: Float[Tensor, "N T D"],
        state: State,
        weights: Float[Tensor, "N T HS"] | None = None,
    ) -> DecoderOutput:
        """Last part of every decoder: normalises the readout, and splits the weights into heads.

        readout: readouts of the steps
        state: state after the last step
        weights: weights of all heads; None without attention
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
