"""Outputs of the encoder and the decoder, decoder states, and the beam slots of a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from nmt.foundation.interfaces.tensors import select_rows


@dataclass(frozen=True)
class Encoded:
    """Encoder output for B sources.

    values: annotation vector of each source position
    mask: True for real positions
    final_state: vector that summarises each source, from the final encoder states
    grids: rows and columns of each image, whose positions follow the words row by row; None if the
        sources have no images
    """

    values: Float[Tensor, "B S M"]
    mask: Bool[Tensor, "B S"]
    final_state: Float[Tensor, "B M"]
    grids: Int[Tensor, "B 2"] | None = None


@dataclass(frozen=True)
class SourceWords:
    """Source tokens for the output layer, without image positions.

    ids: token ids that the copy mechanism may copy
    vectors: embeddings for the lexical translation model; E = 0 if the network has none
    candidates: target tokens that the lexicon has for a source token of the sentence; C = 0 if the
        network has no lexicon
    translations: lexicon probability of each candidate, given each source token
    """

    ids: Int[Tensor, "B W"]
    vectors: Float[Tensor, "B W E"]
    candidates: Int[Tensor, "B C"]
    translations: Float[Tensor, "B W C"]


@dataclass(frozen=True)
class Prepared:
    """Attention memory of B sources: everything that is computed once per source.

    All search rows of a sentence read the same memory, which is never copied per row.

    encoded: encoder output
    keys: annotations projected for comparison with queries; K = 0 without attention
    values: annotations that attention averages, with H heads concatenated along the positions
    projected_values: `values` multiplied by the decoder's context weights if the context is part of
        the decoder's recurrence, otherwise `values`
    decoder_init: input of the bridge, which computes the initial decoder state
    source_words: source tokens, set by `Seq2Seq.encode`; None if the output layer does not read
        source tokens
    """

    encoded: Encoded
    keys: Float[Tensor, "B S K"]
    values: Float[Tensor, "B HS M"]
    projected_values: Float[Tensor, "B HS G"]
    decoder_init: Float[Tensor, "B M"]
    source_words: SourceWords | None = None

    @property
    def mask(self) -> Bool[Tensor, "B S"]:
        """Boolean mask [B, S], True for real source positions."""
        return self.encoded.mask

    def select(self, sentences: Int[Tensor, " b"]) -> "Prepared":
        """Returns the memory of the sentences with the given indices, on any device."""
        return select_rows(self, sentences)


@dataclass(frozen=True, kw_only=True)
class State:
    """Decoder state. The subclasses of decoders add fields: tensors or nested tuples of tensors,
    whose first dimension is the search row.

    cells: recurrent state of each layer, (h,) for a GRU and (h, c) for an LSTM, each Float[N Q]
    attention: attention state carried from one decoder step to the next
    masks: variational dropout masks by name, constant over the decoder steps (training only)
    """

    cells: tuple[tuple[Tensor, ...], ...]
    attention: tuple[tuple[Tensor, ...], ...] = ()
    masks: Mapping[str, Tensor] = field(default_factory=dict)

    def select(self, rows: Int[Tensor, " n"]) -> "State":
        """Returns the decoder state with the given rows only, in the given order.

        rows: row numbers [n], a tensor on any device; numbers may repeat
        """
        return select_rows(self, rows)


@dataclass(frozen=True)
class DecoderOutput:
    """Decoder output for T steps.

    readout: readouts of the decoder; in the result of `Seq2Seq.decode`, the input features of the
        output layer, to which the lexical model adds its own
    weights: attention weights, averaged over the heads; None if the model has no attention
    state: decoder state after the last step
    heads: attention weights of each head, each row with sum 1; None for a single head
    """

    readout: Float[Tensor, "N T D"]
    weights: Float[Tensor, "N T S"] | None
    state: State
    heads: Float[Tensor, "N H T S"] | None = None


@dataclass(frozen=True)
class Layout:
    """Beam slot of each row of a search. A row is an unfinished hypothesis of one of B sentences.

    Every sentence has `width` beam slots, some of which may be empty.

    width: number of beam slots per sentence
    slots: slot of each row among all B·width slots, in ascending order
    """

    width: int
    slots: Int[Tensor, " N"]

    @cached_property
    def sentences(self) -> Int[Tensor, " N"]:
        """Index of the sentence to which each row belongs."""
        return self.slots if self.width == 1 else self.slots // self.width


def sentences_of_rows(
    rows: int, memory: Prepared, layout: Layout | None = None
) -> Int[Tensor, " N"]:
    """Returns the sentence index of each row (hypothesis).

    rows: number of rows N
    memory: attention memory of the B sentences
    layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
    """
    if layout is not None:
        return layout.sentences
    numbers = torch.arange(rows, device=memory.mask.device)
    return numbers if rows == len(memory.mask) else numbers // (rows // len(memory.mask))


def scatter_rows(
    rows: Shaped[Tensor, "N T X"], sentences: int, layout: Layout | None = None
) -> Shaped[Tensor, "B n X"]:
    """Concatenates the rows (hypotheses) of each sentence along the second dimension, [N, T, X] →
    [B, n, X] with n = T · (beam slots per sentence). Empty slots contain zeros.

    rows: rows ordered by sentence; without a layout, every sentence has the same number of rows
    sentences: number of sentences B
    layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
    """
    if layout is not None:
        slots = rows.new_zeros(sentences * layout.width, *rows.shape[1:])  # [B·width, T, X]
        rows = slots.index_copy_(0, layout.slots, rows)
    return rows.reshape(sentences, -1, rows.size(-1))


def gather_rows(
    groups: Float[Tensor, "B n X"], steps: int, layout: Layout | None = None
) -> Float[Tensor, "N T X"]:
    """Inverse of `scatter_rows`: returns the rows (hypotheses) of a search, [B, n, X] → [N, T, X].

    groups: rows of each sentence, concatenated along the second dimension
    steps: number of decoder steps T of each row
    layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
    """
    rows = groups.reshape(-1, steps, groups.size(-1))  # [B·width, T, X], or [N, T, X]
    return rows if layout is None else rows.index_select(0, layout.slots)
