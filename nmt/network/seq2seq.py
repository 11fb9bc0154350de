"""The network that translates: source → encoder → memory → decoder → readout → logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.decoder import Decoder
from nmt.encoder import Encoder
from nmt.foundation.interfaces import DecoderOutput, Memory, State
from nmt.foundation.ranges import Fraction, Width
from nmt.layers.dropout import Dropout, WordDropout
from nmt.layers.packed import Linear
from nmt.layers.words import Words, draw, embedding
from nmt.network import Network

Tying = Literal["none", "output", "all"]
"""Which embeddings share weights: none; `output`: target embedding and output layer; `all`: the source's too."""


class Seq2Seq(Network):
    """Embeddings, encoder, decoder and output layer. The caller must match the sizes of the parts.

    Raises ValueError if `tying` would share matrices of different shapes.
    """

    encoder: Encoder
    decoder: Decoder

    def __init__(
        self,
        *,
        source_vocabulary: int,
        target_vocabulary: int,
        embedding_size: Width,
        encoder: Encoder,
        decoder: Decoder,
        tying: Tying = "none",
        dropout: Fraction = 0.0,
        variational_dropout: bool = False,
        word_dropout: Fraction = 0.0,
        readout_dropout: Fraction = 0.0,
    ) -> None:
        super().__init__()
        if tying != "none" and decoder.readout_size != embedding_size:
            raise ValueError(
                f"model.tying={tying} makes the output layer ({decoder.readout_size} wide) and the target embedding "
                f"({embedding_size} wide) one matrix: set decoder.readout_size={embedding_size}, or model.tying=none"
            )
        self.source_embedding = embedding(source_vocabulary, embedding_size)
        self.target_embedding = self.source_embedding
        if tying != "all":
            self.target_embedding = embedding(target_vocabulary, embedding_size)
        self.encoder, self.decoder = encoder, decoder
        self.output = Linear(decoder.readout_size, target_vocabulary)
        draw(self.source_embedding)
        draw(self.target_embedding)
        if tying == "none":
            nn.init.xavier_uniform_(self.output.weight)
        else:
            self.output.weight = self.target_embedding.weight
        nn.init.zeros_(self.output.bias)
        drops = WordDropout(word_dropout), Dropout(dropout, variational_dropout)
        self.encoder.input = Words(self.source_embedding, *drops)
        self.words = Words(self.target_embedding, *drops)
        self.readout_dropout = Dropout(readout_dropout, variational_dropout)

    def encode(self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"]) -> Memory:
        """The memory of B sentences, prepared for the decoder."""
        return self.decoder.prepare(self.encoder(source, lengths))

    def start(self, memory: Memory) -> State:
        """The state before the first word, one row a sentence. In training, it says what variational dropout drops."""
        state = self.decoder.initial(memory)
        like, rows = memory.summary, memory.mask.size(0)
        masks = {
            "words": self.words.dropout.mask(like, rows, 1, self.words.table.embedding_dim),
            "readout": self.readout_dropout.mask(like, rows, 1, self.decoder.readout_size),
        }
        return replace(state, masks={**state.masks, **{name: mask for name, mask in masks.items() if mask is not None}})

    def decode(self, inputs: Int[Tensor, "N T"], state: State, memory: Memory) -> DecoderOutput:
        """Readouts after each of the input words (BOS first), all dropout applied."""
        output = self.decoder(self.words(inputs, state.masks.get("words")), state, memory)
        return replace(output, readout=self.readout_dropout(output.readout, state.masks.get("readout")))

    def teach(
        self, source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], inputs: Int[Tensor, "B T"]
    ) -> DecoderOutput:
        """Teacher forcing: readouts and attention of a whole batch."""
        memory = self.encode(source, lengths)
        return self.decode(inputs, self.start(memory), memory)

    def logits(self, readout: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Unnormalised log-probabilities of the next word."""
        return self.output(readout)
