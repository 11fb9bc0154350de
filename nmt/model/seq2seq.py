"""The network that translates: source → encoder → memory → decoder → readout → logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nmt.foundation.interfaces import (
    PAD,
    Batch,
    DecoderOutput,
    Layout,
    Pictures,
    Prepared,
    SourceWords,
    State,
)
from nmt.foundation.part_limits import ConfigError, RunView
from nmt.foundation.ranges import Fraction, Width
from nmt.model import Network
from nmt.model.copying import Copying
from nmt.model.decoder import Decoder
from nmt.model.encoder import Encoder
from nmt.model.layers.dropout import Dropout, WordDropout
from nmt.model.layers.embedding import Factored, Words, draw, embedding
from nmt.model.layers.fused_cross_entropy import linear_cross_entropy
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import PackableLinear
from nmt.model.lexical import Lexical

LOGITS = 2**23
"""The number of logits held at a time when given words are scored."""
Tying = Literal["none", "output", "all"]
"""Which embeddings share weights: none; `output`: target embedding and output layer; `all`: the source's too."""


class Seq2Seq(Network):
    """Embeddings, encoder, decoder and output layer. The caller must match the sizes of the parts.

    `copy`: each word is generated, or copied from the source: see copying.py. `lexical`: words are also predicted from the
    source words attended to: see lexical.py. `radices`: how many values each factor of
    the source words has; a factor's vector has `factor_size` features, and the encoder reads them beside the word's.
    A picture has no words: without a source vocabulary, `tying=all` is that of target and output. Raises ValueError if
    `tying` would share matrices of different shapes, or if there is no attention, or no word, for `copy` or `lexical`.
    """

    encoder: Encoder
    decoder: Decoder
    source_embedding: nn.Embedding | None

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
        copy: bool = False,
        lexical: bool = False,
        factor_size: Width = 32,
        radices: Sequence[int] = (),
    ) -> None:
        super().__init__()
        for key, on, uses in (("copy", copy, "copies"), ("lexical", lexical, "translates")):
            if on and not decoder.attends:
                raise ValueError(
                    f"model.{key} {uses} the words attended to, and this decoder has no attention: leave it out"
                )
            if on and encoder.reader is not None:
                raise ValueError(
                    f"model.{key} {uses} words of the source, and this encoder reads pictures: leave it out"
                )
        if tying != "none" and decoder.readout_size != embedding_size:
            raise ValueError(
                f"model.tying={tying} makes the output layer ({decoder.readout_size} wide) and the target embedding "
                f"({embedding_size} wide) one matrix: set decoder.readout_size={embedding_size}, or model.tying=none"
            )
        self.source_embedding = (
            embedding(source_vocabulary, embedding_size) if encoder.reads_words else None
        )
        if tying == "all" and self.source_embedding is not None:
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = embedding(target_vocabulary, embedding_size)
        self.encoder, self.decoder = encoder, decoder
        self.output = PackableLinear(decoder.readout_size, target_vocabulary)
        if self.source_embedding is not None:
            draw(self.source_embedding)
        draw(self.target_embedding)
        if tying == "none":
            nn.init.xavier_uniform_(self.output.weight)
        else:
            self.output.weight = self.target_embedding.weight
        nn.init.zeros_(self.output.bias)
        self.lexical = Lexical(embedding_size, target_vocabulary) if lexical else None
        self.copying = Copying(decoder.readout_size + lexical * embedding_size) if copy else None
        drops = WordDropout(word_dropout), Dropout(dropout, variational_dropout)
        if self.source_embedding is not None:
            factored = (
                Factored(self.source_embedding, radices, factor_size)
                if radices
                else self.source_embedding
            )
            self.encoder.take_words(Words(factored, *drops))
        self.words = Words(self.target_embedding, *drops)
        self.readout_dropout = Dropout(readout_dropout, variational_dropout)

    @staticmethod
    def needs_joint(options: Mapping[str, Any]) -> dict[str, str]:
        """Options that need one vocabulary for both languages, each with the setting that does not."""
        choices = (("tying", "all", "model.tying=output"), ("copy", True, "model.copy=false"))
        return {
            f"model.{key}": instead for key, value, instead in choices if options.get(key) == value
        }

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Options that need one vocabulary for both languages, where there are two."""
        if run.joint:
            return
        for key, instead in cls.needs_joint(run.value("model")).items():
            needs = "needs one vocabulary for both languages"
            yield run.error(key, f"{needs}: set tokenizer.joint=true or {instead}")

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Options of dropout and factors that the run does not have."""
        reasons = {}
        if not run.value("model.dropout") and not run.value("model.readout_dropout"):
            reasons["model.variational_dropout"] = (
                "nothing is dropped: set model.dropout or model.readout_dropout"
            )
        if not run.value("data.factors"):
            reasons["model.factor_size"] = "the source has no factors: set data.factors"
        return reasons

    def encode(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Prepared:
        """The memory of B sentences or pictures, prepared for the decoder."""
        memory = self.decoder.prepare(self.encoder(source, lengths, pictures))
        if self.source_embedding is None or (self.copying is None and self.lexical is None):
            return memory
        words = source % self.source_embedding.num_embeddings
        vectors = memory.values.new_empty(*words.shape, 0)  # [B, W, 0]
        if self.lexical is not None:
            vectors = self.words.dropout(self.source_embedding(words))  # [B, W, E]
        return replace(memory, source_words=SourceWords(ids=words, vectors=vectors))

    def start(self, memory: Prepared) -> State:
        """The state before the first word, one row a sentence. In training, it says what variational dropout drops."""
        state = self.decoder.initial(memory)
        like, rows = memory.encoded.final_state, memory.mask.size(0)
        masks = {
            "words": self.words.dropout.mask(like, rows, 1, self.target_embedding.embedding_dim),
            "readout": self.readout_dropout.mask(like, rows, 1, self.decoder.readout_size),
        }
        return replace(
            state,
            masks={
                **state.masks,
                **{name: mask for name, mask in masks.items() if mask is not None},
            },
        )

    def decode(
        self,
        inputs: Int[Tensor, "N T"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        """Readouts after each of the input words (BOS first), all dropout applied."""
        output = self.decoder(self.words(inputs, state.masks.get("words")), state, memory, layout)
        readout = self.readout_dropout(output.readout, state.masks.get("readout"))
        if self.lexical is not None and output.weights is not None:
            readout = torch.cat([readout, self.lexical(output.weights, memory, layout)], -1)
        return replace(output, readout=readout)

    def teacher_forcing(self, batch: Batch) -> tuple[DecoderOutput, Prepared]:
        """Teacher forcing: readouts and attention of a whole batch, and its memory."""
        memory = self.encode(batch.source, batch.source_lengths, batch.pictures)
        return self.decode(batch.inputs, self.start(memory), memory), memory

    def logits(self, readout: Float[Tensor, "N T D"]) -> Float[Tensor, "N T V"]:
        """Unnormalised log-probabilities of the words of the vocabulary."""
        if self.lexical is None:
            return to_float(self.output(readout))
        own, seen = readout.split([self.output.in_features, self.lexical.output.in_features], -1)
        return to_float(self.output(own)) + to_float(self.lexical.output(seen))

    def log_probs(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None = None
    ) -> Float[Tensor, "N T V"]:
        """Log-probabilities of the next word at each position."""
        logits = self.logits(output.readout)
        if self.copying is None:
            return torch.log_softmax(logits, -1, out=None if torch.is_grad_enabled() else logits)
        return self.copying.log_probs(logits, output, memory, layout)

    def log_probs_of(
        self, output: DecoderOutput, memory: Prepared, words: Int[Tensor, "N T"]
    ) -> Float[Tensor, "N T"]:
        """Log-probabilities of given words, a slice of positions at a time."""
        steps = max(1, LOGITS // (self.output.out_features * len(words)))
        found = []
        for start in range(0, words.size(1), steps):
            part = slice(start, start + steps)
            weights = None if output.weights is None else output.weights[:, part]
            one = replace(output, readout=output.readout[:, part], weights=weights)
            found.append(
                self.log_probs(one, memory).gather(2, words[:, part].unsqueeze(2)).squeeze(2)
            )
        return torch.cat(found, 1)

    def loss(
        self,
        output: DecoderOutput,
        memory: Prepared,
        targets: Int[Tensor, "N T"],
        smoothing: float,
        weights: Float[Tensor, "N T"] | None = None,
        agreement: float = 0.0,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Cross-entropy of the real words among the targets: (smoothed, plain), sums in nats; only the first has a
        gradient, and a weight for each word, if there are `weights`. With an `agreement`, each sentence has two rows, one beside the other, whose distributions are
        compared: see fused_cross_entropy.py."""
        real = targets != PAD if weights is None else (targets != PAD) & (weights != 0)
        passes, copying = 2 if agreement else 1, {}

        def words(held: Tensor) -> Tensor:
            # The passes of a word one beside the other.
            side_by_side, chosen = (
                x.unflatten(0, (-1, passes)).transpose(1, 2) for x in (held, real)
            )
            return side_by_side[chosen]

        readout, each = words(output.readout), None if weights is None else words(weights)
        if self.copying is not None:
            copying = {
                "generated": self.copying.generated(readout).squeeze(-1),
                "copied": words(self.copying.copied(output, memory, targets)),
            }
        weight = self.output.weight
        if self.lexical is not None:
            weight = torch.cat([weight, self.lexical.output.weight], 1)
        return linear_cross_entropy(
            readout,
            weight,
            self.output.bias,
            words(targets),
            smoothing,
            **copying,
            weights=each,
            agreement=agreement,
        )
