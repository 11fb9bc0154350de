"""What every decoder is: a recurrence over the target words that reads the memory.

`forward` serves both training (the whole sentence at once) and generation (T = 1, with the state of the step before). A
decoder that recurs through attention has a loop over time. The loop contains only what recurs; everything else is
computed outside it, for all T at once. A decoder is one file here and one YAML in conf/decoder.

Read: this file, bridge, luong, bahdanau, conditional, luong_feed, fixed, stack, readout.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from nmt.foundation.interfaces import (
    DecoderOutput,
    Encoded,
    Layout,
    Prepared,
    State,
    gather_rows,
    scatter_rows,
)
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Depth, Fraction, Width
from nmt.model.attention import Attention, AttentionState
from nmt.model.decoder.bridge import Bridge, BridgeName
from nmt.model.decoder.stack import Stack
from nmt.model.layers.cells import CellName, cell_class, recurrent
from nmt.model.layers.dropout import Dropout, idle_layers
from nmt.model.layers.loop_products import LoopProduct
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import linear
from nmt.model.layers.recurrence import DropoutOf, Recurrent

AttentionStep = Callable[
    [Tensor, Sequence[Tensor], AttentionState], tuple[Tensor, Tensor, AttentionState]
]


class Decoder(nn.Module):
    """Base of all decoders: sizes, the bridge from the encoder, dropout.

    hidden_size is Q, readout_size D; `dropout` acts between layers, `recurrent_dropout` inside them; `residual`: every
    layer but the first adds its input to its output; `transition_depth`: see `Recurrent`; `layer_norm` normalises the
    readout; `context_gate`: see nmt/model/attention. Raises ValueError if a score is missing or superfluous.
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
        if self.attends != (attention is not None):
            name = type(self).__name__.lower()
            remedy = (
                "choose attention=concat, general, dot …" if self.attends else "add attention=none"
            )
            need = (
                "needs an attention score"
                if self.attends
                else "uses no attention, yet a score is given"
            )
            raise ValueError(f"decoder: {name} {need}: {remedy}")
        self.cell_name, self.state_parts = cell, cell_class(cell).state_parts
        self.embedding_size, self.memory_size = embedding_size, memory_size
        self.hidden_size, self.readout_size, self.num_layers = hidden_size, readout_size, num_layers
        self.attention: Attention = attention  # type: ignore[assignment]  # None where `attends` is False
        if context_gate and attention is None:
            raise ValueError(
                "decoder.context_gate: there is no context without attention; set it to false"
            )
        if context_gate:
            self.attention.add_gate(hidden_size)
        self.transition_depth, self.residual = transition_depth, residual
        self.bridge = Bridge(bridge, memory_size, hidden_size, num_layers, self.state_parts)
        self.dropout = Dropout(dropout, variational_dropout)
        self.inside, self.inside_of = (
            Dropout(recurrent_dropout, variational=True),
            recurrent_dropout_of,
        )
        self.norm = nn.LayerNorm(readout_size) if layer_norm else nn.Identity()
        self.make_layers()

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys that need more than one layer, or dropout."""
        return idle_layers(run, "decoder")

    def make_layers(self) -> None:
        """Creates the layers of a particular decoder, from the sizes above."""
        raise NotImplementedError

    def recurrent(self, input_size: int, depth: int | None = None) -> Recurrent:
        """A layer with this decoder's cells. `depth`: if not `transition_depth`."""
        return recurrent(
            self.cell_name,
            input_size,
            self.hidden_size,
            depth=depth or self.transition_depth,
            dropout=self.inside.p,
            dropout_of=self.inside_of,
        )

    def stack(self, input_size: int, first: int = 0) -> Stack:
        """Layers on top of one another, from number `first` on; layer 0 has inputs of `input_size`."""
        sizes = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        return Stack(
            [self.recurrent(size) for size in sizes[first:]], self.dropout, self.residual, first
        )

    def prepare(self, encoded: Encoded) -> Prepared:
        """Tensors that the decoder needs once per source."""
        decoder_init = self.bridge.reads(encoded)
        memory = self.attention.prepare(encoded)
        return Prepared(
            encoded=encoded,
            keys=memory.keys,
            values=memory.values,
            projected_values=self.project(memory.values, memory.heads),
            decoder_init=decoder_init,
        )

    def project(self, values: Float[Tensor, "B S HM"], heads: int) -> Float[Tensor, "B S HG"]:
        """Values as a loop over time adds them to its gates; the values themselves if there is no such loop."""
        return values

    def multiplied(
        self, values: Float[Tensor, "B S HM"], heads: int, weight: Float[Tensor, "G M"]
    ) -> Float[Tensor, "B S HG"]:
        """The values of each head multiplied by what a loop would multiply the context by."""
        by_head = values.unflatten(-1, (heads, -1))  # [B, S, H, M]
        return to_float(linear(self, "inputs", by_head, (weight, None)).flatten(-2))

    def attention_step(self, memory: Prepared, layout: Layout | None) -> AttentionStep:
        """One step of attention in a loop: from h, its products with `Attention.query_blocks` and the state of the
        attention, to the weights [N 1 HS], their sum of projected values [N G], and the next state."""
        attention = self.attention
        cached_values = LoopProduct(memory.by_head(memory.projected_values))

        def attend(
            h: Tensor, products: Sequence[Tensor], state: AttentionState
        ) -> tuple[Tensor, Tensor, AttentionState]:
            query = attention.query(h, *products).unsqueeze(1)
            weights, state = attention.attend(query, memory, state, layout)
            summed = cached_values(scatter_rows(weights, memory.mask.size(0), layout))
            return weights, gather_rows(summed, 1, layout).squeeze(1), state

        return attend

    def initial(self, memory: Prepared) -> State:
        """The state before the first word, one row a sentence. In training, it says what variational dropout drops."""
        cells = self.bridge.states(memory.decoder_init)
        attention_state = (
            self.attention.initial_attention_state(memory, memory.mask.size(0))
            if self.attends
            else ()
        )
        return State(cells=cells, attention=attention_state, masks=self.masks(cells[0][0]))

    def masks(self, like: Float[Tensor, "N Q"]) -> Mapping[str, Tensor]:
        """New masks: "between i" of what enters layer i, "inside i" of its recurrent products."""
        made: dict[str, Tensor | None] = {}
        for i in range(self.num_layers):
            made[f"between {i}"] = (
                self.dropout.mask(like, len(like), 1, self.hidden_size) if i else None
            )
            made[f"inside {i}"] = self.inside.mask(like, len(like), self.hidden_size)
        return {name: mask for name, mask in made.items() if mask is not None}

    def forward(
        self,
        embedded: Float[Tensor, "N T E"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        """Readouts for T more words: position t sees embedded[:, :t+1], the state and the memory.

        embedded holds the vectors of the words *before* those to predict; N is a multiple of the memory's sentences.
        """
        raise NotImplementedError

    def output(
        self,
        readout: Float[Tensor, "N T D"],
        state: State,
        weights: Float[Tensor, "N T HS"] | None = None,
    ) -> DecoderOutput:
        """The last part of every decoder: normalises the readout; attention weights over all heads and per head."""
        if weights is None:
            return DecoderOutput(readout=self.norm(readout), weights=None, state=state)
        shown, heads = self.attention.shown(weights), self.attention.each(weights)
        return DecoderOutput(readout=self.norm(readout), weights=shown, state=state, heads=heads)
