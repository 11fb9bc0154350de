"""What every decoder is: a recurrence over the target words that reads the memory.

`forward` serves both training (the whole sentence at once) and generation (T = 1, with the state of the step before). A
decoder that recurs through attention has a loop over time. The loop contains only what recurs; everything else is
computed outside it, for all T at once. A decoder is one file here and one YAML in conf/decoder.

Imported by: network.
Read: this file, bridge, luong, bahdanau, luong_feed, fixed, stack, readout.
"""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from nmt.attention import Attention
from nmt.decoder.bridge import Bridge
from nmt.foundation.interfaces import DecoderOutput, Memory, State
from nmt.foundation.ranges import Depth, Fraction, Width
from nmt.layers.dropout import Dropout
from nmt.layers.recurrence import CELLS, CellName


class Decoder(nn.Module):
    """Base of all decoders: sizes, the bridge from the encoder, dropout.

    hidden_size is Q, readout_size D; `dropout` acts between layers, `layer_norm` normalises the readout. Raises
    ValueError if a score is missing or superfluous.
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
        dropout: Fraction = 0.0,
        variational_dropout: bool = False,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        if self.attends != (attention is not None):
            name = type(self).__name__.lower()
            remedy = "choose attention=concat, general, dot …" if self.attends else "add attention=none"
            need = "needs an attention score" if self.attends else "uses no attention, yet a score is given"
            raise ValueError(f"decoder: {name} {need}: {remedy}")
        self.cell_name, self.cell, self.state_parts = cell, CELLS[cell], 2 if cell == "lstm" else 1
        self.embedding_size, self.memory_size = embedding_size, memory_size
        self.hidden_size, self.readout_size, self.num_layers = hidden_size, readout_size, num_layers
        self.attention: Attention = attention  # type: ignore[assignment]  # None where `attends` is False
        self.bridge = Bridge(memory_size, hidden_size, num_layers, self.state_parts)
        self.dropout = Dropout(dropout, variational_dropout)
        self.norm = nn.LayerNorm(readout_size) if layer_norm else nn.Identity()
        self.make_layers()

    def make_layers(self) -> None:
        """Creates the layers of a particular decoder, from the sizes above."""
        raise NotImplementedError

    def prepare(self, memory: Memory) -> Memory:
        """Adds to the memory what this decoder needs once per sentence."""
        return self.attention.prepare(memory) if self.attends else memory

    def initial(self, memory: Memory) -> State:
        """The state before the first word, one row a sentence."""
        carry = self.attention.nothing_remembered(memory, memory.mask.size(0)) if self.attends else ()
        return State(cells=self.bridge.states(memory.summary), attention=carry)

    def forward(self, embedded: Float[Tensor, "N T E"], state: State, memory: Memory) -> DecoderOutput:
        """Readouts for T more words: position t sees embedded[:, :t+1], the state and the memory.

        embedded holds the vectors of the words *before* those to predict; N is a multiple of the memory's sentences.
        """
        raise NotImplementedError

    def output(
        self, readout: Float[Tensor, "N T D"], state: State, weights: Float[Tensor, "N T HS"] | None = None
    ) -> DecoderOutput:
        """The last part of every decoder: normalises the readout; attention weights over all heads and per head."""
        if weights is None:
            return DecoderOutput(readout=self.norm(readout), weights=None, state=state)
        shown, heads = self.attention.shown(weights), self.attention.each(weights)
        return DecoderOutput(readout=self.norm(readout), weights=shown, state=state, heads=heads)
