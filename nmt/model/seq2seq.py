"""Translation network: source → encoder → memory → decoder → readout → logits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from jaxtyping import Int
from torch import Tensor, nn

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import (
    Batch,
    DecoderOutput,
    Layout,
    Pictures,
    Prepared,
    SourceWords,
    State,
)
from nmt.foundation.part_limits import ConfigError, RunView, broken, idle_keys, shown
from nmt.foundation.ranges import Fraction, Positive, Width
from nmt.model import Network
from nmt.model.copying import Copying
from nmt.model.decoder import Decoder
from nmt.model.encoder import Encoder
from nmt.model.layers.dropout import Dropout, WordDropout
from nmt.model.layers.embedding import Factored, Words, draw, embedding
from nmt.model.layers.packed import PackableLinear
from nmt.model.lexical import Lexical
from nmt.model.lexicon import Lexicon, LexiconMixture, LexiconUse
from nmt.model.output import OutputLayer

Tying = Literal["none", "output", "all"]
"""Choice of the layers that share one weight matrix.

With "none", no layers share a matrix. With "output", target embedding and output layer share a
matrix. With "all", source embedding, target embedding and output layer share a matrix.
"""


class Seq2Seq(Network):
    """Translation network: embeddings, encoder, decoder and output layer. The caller must pass
    components of matching sizes.

    source_vocabulary: number of source subwords, without factors
    target_vocabulary: number of target subwords
    embedding_size: E, length of an embedding vector
    encoder: encoder of the source; with an encoder of images alone, the network has no source
        embedding
    decoder: decoder of the target sentence
    tying: layers that share one weight matrix: none, output or all
    dropout: dropout probability of embedding features
    variational_dropout: whether all positions of a sentence share one dropout mask
    word_dropout: probability of dropping a whole embedding vector
    readout_dropout: dropout probability of readout features
    copy: whether target tokens may be copied from the source
    lexical: whether the attended source embeddings also predict target tokens
    lexicon: translation lexicon: auto (estimated from the training text) or a file; None without
        a lexicon
    lexicon_use: use of the lexicon: as a bias of the logits, or in a mixture with the network's
        distribution
    lexicon_epsilon: ε of the bias
    factor_size: length of each factor's embedding, which is concatenated to the subword's
        embedding
    radices: number of values of each factor of the source tokens; empty without factors

    Raises ValueError if `tying` would share matrices of different shapes, or if `copy`, `lexical`
    or `lexicon` is set without attention or without source tokens.
    """

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
        lexicon: str | None = None,
        lexicon_use: LexiconUse = "bias",
        lexicon_epsilon: Positive = 0.001,
        factor_size: Width = 32,
        radices: Sequence[int] = (),
    ) -> None:
        super().__init__()
        _check_tying(decoder, embedding_size, tying)
        _check_sources(encoder, decoder, {"copy": copy, "lexical": lexical, "lexicon": lexicon})
        self.source_embedding = (
            embedding(source_vocabulary, embedding_size) if encoder.reads_words else None
        )
        shared = self.source_embedding if tying == "all" else None
        self.target_embedding = shared or embedding(target_vocabulary, embedding_size)
        self.encoder, self.decoder = encoder, decoder
        self.output = PackableLinear(decoder.readout_size, target_vocabulary)
        self._initialize_tables(tying)
        self.lexical = Lexical(embedding_size, target_vocabulary) if lexical else None
        features = decoder.readout_size + (embedding_size if lexical else 0)
        sizes = (source_vocabulary, target_vocabulary)
        self.lexicon = Lexicon(*sizes, lexicon_epsilon) if lexicon else None
        is_mixture = bool(lexicon) and lexicon_use == "mixture"
        pointer = LexiconMixture if is_mixture else Copying
        self.copying = pointer(features) if copy or is_mixture else None
        bias = None if is_mixture else self.lexicon
        self.output_layer = OutputLayer(self.output, self.lexical, self.copying, bias)
        drops = WordDropout(word_dropout), Dropout(dropout, variational_dropout)
        if self.source_embedding is not None:
            table = self.source_embedding
            vectors = Factored(table, radices, factor_size) if radices else table
            self.encoder.take_words(Words(vectors, *drops))
        # Input layer of the decoder. The encoder has its own.
        self.words = Words(self.target_embedding, *drops)
        self.readout_dropout = Dropout(readout_dropout, variational_dropout)

    def _initialize_tables(self, tying: Tying) -> None:
        """Initialises embeddings and output layer; shares their matrix unless `tying` is "none"."""
        # With "all", the same table is initialised twice: a single draw would change the initial
        # weights that a seed gives.
        for embeddings in filter(None, (self.source_embedding, self.target_embedding)):
            draw(embeddings)
        if tying == "none":
            nn.init.xavier_uniform_(self.output.weight)
        else:
            self.output.weight = self.target_embedding.weight
        nn.init.zeros_(self.output.bias)

    @staticmethod
    def needs_joint(options: Mapping[str, Any]) -> dict[str, str]:
        """Returns the enabled options that require a shared vocabulary of source and target, each
        with a setting that works with separate vocabularies.

        options: keyword arguments of a translation model
        """
        choices = (("tying", "all", "model.tying=output"), ("copy", True, "model.copy=false"))
        return {
            f"model.{key}": instead for key, value, instead in choices if options.get(key) == value
        }

    @classmethod
    def conflicts(cls, run: RunView) -> Iterator[ConfigError]:
        """Yields an error for each enabled option that requires a shared vocabulary, if source and
        target have separate vocabularies. Yields an error for a lexicon with several source texts,
        for a lexicon mixture with copying, and for either of these with attention weights whose sum
        is not 1."""
        lexicon = run.value("model.lexicon")
        is_mixture = lexicon and run.value("model.lexicon_use") == "mixture"
        is_copying = run.value("model.copy")
        shared = "requires a shared vocabulary of source and target; set tokenizer.joint=true or {}"
        yield from broken(
            (
                lexicon and run.sources > 1,
                "model.lexicon",
                "supported only with one source text per sentence pair; set model.lexicon=null",
                lexicon,
            ),
            (
                (is_mixture or is_copying) and run.value("window.normalized") is False,
                "window.normalized",
                "copying and the mixture with a lexicon need attention weights that sum to 1; set "
                "window.normalized=true",
                False,
            ),
            (
                is_mixture and is_copying,
                "model.lexicon_use",
                "mixing in the lexicon's distribution cannot be combined with model.copy=true; set "
                "model.copy=false or model.lexicon_use=bias",
                "mixture",
            ),
            *(
                (not run.joint, key, shared.format(instead), run.value(key))
                for key, instead in cls.needs_joint(run.value("model")).items()
            ),
        )

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the settings for dropout and source factors that have no effect, each with the
        reason."""
        has_dropout = run.value("model.dropout") or run.value("model.readout_dropout")
        return idle_keys(
            (
                not has_dropout,
                "dropout is 0; set model.dropout or model.readout_dropout",
                "model.variational_dropout",
            ),
            (
                not run.value("data.factors"),
                "the source has no factors; set data.factors",
                "model.factor_size",
            ),
            (
                not run.value("model.lexicon"),
                "model.lexicon=null, so the network has no lexicon; set model.lexicon=auto",
                "model.lexicon_use",
                "model.lexicon_epsilon",
            ),
            (
                run.value("model.lexicon_use") != "bias",
                "needs model.lexicon_use=bias",
                "model.lexicon_epsilon",
            ),
        )

    def encode(
        self,
        source: Int[Tensor, "B W"],
        lengths: Int[Tensor, " B"],
        pictures: Pictures | None = None,
    ) -> Prepared:
        """Returns the encoder memory of B sources, prepared for the decoder. The memory includes
        the source tokens if the copy mechanism, the lexical model or the lexicon needs them.

        source: token ids padded with PAD; with factors, an id encodes a subword and its factor
            values
        lengths: number of tokens of each source, EOS included
        pictures: images of the sources, if the encoder reads images
        """
        memory = self.decoder.prepare(self.encoder(source, lengths, pictures))
        uses = (self.copying, self.lexical, self.lexicon)
        if self.source_embedding is None or not any(uses):
            return memory
        ids = source % self.source_embedding.num_embeddings  # [B, W], without factors
        vectors = memory.values.new_empty(*ids.shape, 0)  # [B, W, 0]
        if self.lexical is not None:
            vectors = self.words.dropout(self.source_embedding(ids))  # [B, W, E]
        candidates, translations = ids[:, :0], vectors[:, :, :0]  # [B, 0], [B, W, 0]
        if self.lexicon is not None:
            candidates, translations = self.lexicon(ids)  # [B, C], [B, W, C]
        words = SourceWords(ids, vectors, candidates, translations)
        return replace(memory, source_words=words)

    def start(self, memory: Prepared) -> State:
        """Returns the decoder state before the first token, with one row per sentence. In
        training, the state contains newly drawn masks of variational dropout.

        memory: prepared encoder memory of B sentences
        """
        state = self.decoder.initial(memory)
        sentences = memory.mask.size(0)
        like = memory.encoded.final_state
        words = self.words.dropout.mask(like, sentences, 1, self.target_embedding.embedding_dim)
        readout = self.readout_dropout.mask(like, sentences, 1, self.decoder.readout_size)
        masks = {"words": words, "readout": readout}  # [B, 1, E], [B, 1, D]
        drawn = {name: mask for name, mask in masks.items() if mask is not None}
        return replace(state, masks={**state.masks, **drawn})

    def decode(
        self,
        inputs: Int[Tensor, "N T"],
        state: State,
        memory: Prepared,
        layout: Layout | None = None,
    ) -> DecoderOutput:
        """Runs the decoder over T input tokens, with dropout of its inputs and its readout.

        inputs: input token of each decoder step; BOS is the first input of a sentence
        state: decoder state before the first step
        memory: prepared encoder memory of the sentences
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i

        Returns the decoder output: input features of the output layer, attention weights, and the
        state after the last step.
        """
        embedded = self.words(inputs, state.masks.get("words"))  # [N, T, E]
        # readout [N, T, D], weights [N, T, S]
        output = self.decoder(embedded, state, memory, layout)
        self.check_output(output, (*embedded.shape[:2], memory.mask.size(1)))
        readout = self.readout_dropout(output.readout, state.masks.get("readout"))  # [N, T, D]
        output = replace(output, readout=readout)
        return replace(output, readout=self.output_layer.features(output, memory, layout))

    def check_output(self, output: object, sizes: tuple[int, int, int]) -> None:
        """Raises UserError if the decoder, which may be a class outside nmt, does not return a
        `DecoderOutput` with values of the right types and shapes.

        sizes: number of rows N, of steps T and of source positions S
        """
        rows, steps, positions = sizes
        features = self.decoder.readout_size
        problem = ""
        if not isinstance(output, DecoderOutput):
            problem = f"{type(output).__name__}, must be nmt.foundation.interfaces.DecoderOutput"
        elif output.readout.shape != (rows, steps, features):
            problem = (
                f"readouts of shape {list(output.readout.shape)}, expected [{rows}, {steps}, "
                f"{features}] (rows, steps, decoder.readout_size)"
            )
        elif output.weights is not None and output.weights.shape != (rows, steps, positions):
            problem = (
                f"weights of shape {list(output.weights.shape)}, expected [{rows}, {steps}, "
                f"{positions}] (rows, steps, source positions)"
            )
        elif not isinstance(output.state, State):
            problem = (
                f"the state {type(output.state).__name__}, must be nmt.foundation.interfaces.State"
            )
        if problem:
            raise UserError(
                f"decoder {type(self.decoder).__name__}: `forward` returns {problem}; "
                "python -m nmt.check_attention FILE.py:NAME tests the class"
            )

    def teacher_forcing(self, batch: Batch) -> tuple[DecoderOutput, Prepared]:
        """Runs the network on a batch with teacher forcing: the decoder inputs are the reference
        tokens.

        batch: B sentence pairs

        Returns the decoder output at all positions, and the encoder memory of the sources.
        """
        memory = self.encode(batch.source, batch.source_lengths, batch.pictures)
        return self.decode(batch.inputs, self.start(memory), memory), memory


def _check_sources(encoder: Encoder, decoder: Decoder, options: Mapping[str, Any]) -> None:
    """Raises ValueError if an option of the output layer needs attention over source tokens, and
    the decoder has no attention or the source has no tokens.

    options: values of the options by key; false or null for an option that is not set
    """
    for key, value in options.items():
        if not value:
            continue
        chosen = f"model.{key}={shown(value)}"
        unset = f"set model.{key}={'null' if key == 'lexicon' else 'false'}"
        use = "copy" if key == "copy" else "translate"
        if not decoder.attends:
            raise ValueError(
                f"{chosen}: needs attention weights to {use} source words, but this decoder has no "
                f"attention; {unset}"
            )
        if encoder.reader is not None:
            raise ValueError(
                f"{chosen}: needs source words to {use}, but this encoder reads images; {unset}"
            )


def _check_tying(decoder: Decoder, embedding_size: int, tying: str) -> None:
    """Raises ValueError if the output layer and the target embedding cannot share a matrix."""
    if tying != "none" and decoder.readout_size != embedding_size:
        raise ValueError(
            f"model.tying={tying}: output layer ({decoder.readout_size} features) and target "
            f"embedding ({embedding_size} features) cannot share a matrix; set "
            f"model.embedding_size={decoder.readout_size}, decoder.readout_size={embedding_size}, "
            "or model.tying=none"
        )
