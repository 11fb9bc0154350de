"""The values passed between the parts: frozen, batch-first, typed with shapes.

Dimensions: B sentences, S source length, T target length, E embedding, Q query (decoder state),
M memory, K key, V vocabulary, N search rows (B x beam), D readout; of pictures, P positions,
C channels. Masks are Boolean, True = real token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

PAD = 0
"""Id of padding, the same in every vocabulary, as are those of the other special symbols."""
UNK = 1
"""Id of unknown words."""
BOS = 2
"""Id of the beginning of a sentence."""
EOS = 3
"""Id of the end of a sentence."""

Record = TypeVar("Record")


def map_tensors(value: Record, change: Callable[[Tensor], Tensor]) -> Record:
    """A copy of a value in which every tensor is changed.

    value: a tensor, or tuples, mappings and dataclasses that contain tensors, nested in any way;
        other values stay
    change: new tensor of each tensor
    """
    result: Any = value
    if isinstance(value, Tensor):
        result = change(value)
    elif isinstance(value, tuple):
        result = tuple(map_tensors(item, change) for item in value)
    elif isinstance(value, Mapping):
        result = {key: map_tensors(item, change) for key, item in value.items()}
    elif is_dataclass(value):
        items = {f.name: getattr(value, f.name) for f in fields(value)}
        changed = {name: map_tensors(item, change) for name, item in items.items()}
        result = replace(value, **changed)  # type: ignore[type-var]
    return result  # type: ignore[no-any-return]


def to_device(record: Record, device: torch.device) -> Record:
    """A dataclass with all its tensors on a device."""
    return map_tensors(record, lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True)
class Pictures:
    """Images, or grids of features, padded with zeros at the bottom and on the right.

    values: colours or features of each position
    sizes: rows and columns of each picture; 0 and 0 for no picture
    even: whether all have the same size, so nothing is padding
    """

    values: Float[Tensor, "B rows columns C"]
    sizes: Int[Tensor, "B 2"]
    even: bool


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded at the end with PAD.

    source: source ids
    source_lengths: tokens of each source, EOS included
    inputs: target ids, BOS first
    targets: target ids, EOS last
    num_tokens: number of target tokens, EOS included
    links: given alignments, each row shared equally by its links; rows of words without links are
        zeros (None: no alignments)
    pictures: pictures of the sources (None: they are text)
    """

    source: Int[Tensor, "B S"]
    source_lengths: Int[Tensor, " B"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    num_tokens: int
    links: Float[Tensor, "B T S"] | None = None
    pictures: Pictures | None = None

    def to(self, device: torch.device) -> Batch:
        return to_device(self, device)

    def repeated(self, times: int) -> Batch:
        """Each pair several times, one beside the other."""
        repeated = map_tensors(self, lambda tensor: tensor.repeat_interleave(times, 0))
        return replace(repeated, num_tokens=times * self.num_tokens)


@dataclass(frozen=True)
class TextBatch:
    """B texts in N rows, padded at the end with PAD.

    tokens: ids
    lengths: tokens of each row
    counts: rows of each text
    labels: labels of each text (None: unknown)
    num_tokens: number of texts
    """

    tokens: Int[Tensor, "N S"]
    lengths: Int[Tensor, " N"]
    counts: Int[Tensor, " B"]
    labels: Bool[Tensor, "B L"] | None
    num_tokens: int

    def to(self, device: torch.device) -> TextBatch:
        return to_device(self, device)


@runtime_checkable
class TrainingBatch(Protocol):
    """Input of an objective; a loss is reported per `num_tokens`."""

    @property
    def num_tokens(self) -> int: ...
    def to(self, device: torch.device, /) -> Any: ...


@runtime_checkable
class Batches(Protocol):
    """The batches of one epoch, by index."""

    def __len__(self) -> int: ...
    def read(self, indices: Sequence[int]) -> Iterator[TrainingBatch]:
        """Yields some of the batches; they may be made ahead of time."""
        ...


@dataclass(frozen=True)
class Layout:
    """Slots of the rows of a search: each of B sentences has `width` slots; some may be empty.

    width: slots of each sentence
    slots: slot of each row among all B·width slots; ascending
    """

    width: int
    slots: Int[Tensor, " N"]

    @cached_property
    def sentences(self) -> Int[Tensor, " N"]:
        """Sentence of each row."""
        return self.slots if self.width == 1 else self.slots // self.width


def sentences_of_rows(
    rows: int, memory: Prepared, layout: Layout | None = None
) -> Int[Tensor, " N"]:
    """Sentence of each row of a search."""
    if layout is not None:
        return layout.sentences
    numbers = torch.arange(rows, device=memory.mask.device)
    return numbers if rows == len(memory.mask) else numbers // (rows // len(memory.mask))


def scatter_rows(
    rows: Shaped[Tensor, "N T X"], sentences: int, layout: Layout | None = None
) -> Shaped[Tensor, "B n X"]:
    """Rows grouped by sentence: n = T · (rows per sentence), with zeros in empty slots.

    rows: rows in the order of their sentences; without a layout, the same number per sentence
    sentences: B
    layout: slots of the rows
    """
    if layout is not None:
        slots = rows.new_zeros(sentences * layout.width, *rows.shape[1:])  # [B·W, T, X]
        rows = slots.index_copy_(0, layout.slots, rows)
    return rows.reshape(sentences, -1, rows.size(-1))


def gather_rows(
    groups: Float[Tensor, "B n X"], steps: int, layout: Layout | None = None
) -> Float[Tensor, "N T X"]:
    """Inverse of `scatter_rows`, for rows with T = `steps`."""
    rows = groups.reshape(-1, steps, groups.size(-1))  # [B·W, T, X], or [N, T, X]
    return rows if layout is None else rows.index_select(0, layout.slots)


@dataclass(frozen=True)
class Encoded:
    """Output of an encoder for B sources.

    values: annotation of each source position
    mask: True for real positions
    final_state: summary of each source
    grids: rows and columns of each picture; its positions follow those of the words, row by row
        (None: no pictures)
    """

    values: Float[Tensor, "B S M"]
    mask: Bool[Tensor, "B S"]
    final_state: Float[Tensor, "B M"]
    grids: Int[Tensor, "B 2"] | None = None


@dataclass(frozen=True)
class SourceWords:
    """Source words for the output layer, without the positions of a picture.

    ids: to be copied
    vectors: to be translated one by one; E = 0 if the model has no lexical part
    """

    ids: Int[Tensor, "B W"]
    vectors: Float[Tensor, "B W E"]


@dataclass(frozen=True)
class Prepared:
    """Memory of B sources: everything that is computed once per source.

    Several rows may read the memory of the same source; it is never copied for them.

    encoded: output of the encoder
    keys: annotations as they are compared with queries; K = 0 without attention
    values: annotations as they are summed, H heads side by side
    projected_values: `values` multiplied by the weights by which a recurrent decoder multiplies the
        context; otherwise `values`
    decoder_init: input of the bridge, which makes the decoder's first state
    source_words: set by `Seq2Seq.encode` if the output layer reads the source (None: it does not)
    """

    encoded: Encoded
    keys: Float[Tensor, "B S K"]
    values: Float[Tensor, "B S HM"]
    projected_values: Float[Tensor, "B S HG"]
    decoder_init: Float[Tensor, "B M"]
    source_words: SourceWords | None = None

    @property
    def mask(self) -> Bool[Tensor, "B S"]:
        """True for real positions."""
        return self.encoded.mask

    @property
    def heads(self) -> int:
        """Number of heads H of `values`."""
        return self.values.size(-1) // self.encoded.values.size(-1)

    def by_head(self, values: Float[Tensor, "B S HX"]) -> Float[Tensor, "B HS X"]:
        """Heads as extra positions, so that one batched product serves all heads."""
        if self.heads == 1:
            return values
        # [B, S, H·X] → [B, S, H, X] → [B, H, S, X] → [B, H·S, X]
        return values.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(1, 2)

    def select(self, sentences: Int[Tensor, " b"]) -> Prepared:
        """Memory of some of the sentences."""
        return map_tensors(self, lambda tensor: tensor.index_select(0, sentences))


@dataclass(frozen=True, kw_only=True)
class State:
    """Decoder state; each decoder declares its fields, (nested tuples of) tensors with rows first.

    cells: recurrent state of each layer: (h,) for a GRU, (h, c) for an LSTM, each Float[N Q]
    attention: state of the attention from step to step
    masks: dropout masks by name, constant over the steps (variational dropout, in training only)
    """

    cells: tuple[tuple[Tensor, ...], ...]
    attention: tuple[tuple[Tensor, ...], ...] = ()
    masks: Mapping[str, Tensor] = field(default_factory=dict)

    def select(self, rows: Int[Tensor, " n"]) -> State:
        """The state of the given rows, in the given order (rows may repeat)."""
        return map_tensors(self, lambda tensor: tensor.index_select(0, rows))


@dataclass(frozen=True)
class DecoderOutput:
    """Output of a decoder for T steps.

    readout: features from which tokens are predicted
    weights: attention weights, the mean over the heads (None without attention)
    state: state after the last step
    heads: with several heads, the weights of each, each row with sum 1
    """

    readout: Float[Tensor, "N T D"]
    weights: Float[Tensor, "N T S"] | None
    state: State
    heads: Float[Tensor, "N H T S"] | None = None


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    tokens: ids without BOS and EOS
    log_prob: natural logarithm of the probability, EOS included
    score: log-probability with the penalties of the search
    """

    tokens: list[int]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Loss:
    """Loss of a batch, in nats.

    total: sum over the tokens, to be differentiated
    nll: plain negative log-likelihood of the same tokens (no smoothing), detached
    num_tokens: number of tokens
    """

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    num_tokens: int


@dataclass(frozen=True)
class Request:
    """Constraints of a search for one sentence, in target ids.

    max_length: maximal number of tokens, EOS not counted
    seed: random seed of a search that samples; it depends on the sentence, not on its place in
        the batch
    prefix: tokens that the output begins with
    required: sequences that the output contains; no continuation piece may follow one
    forbidden: sequences that the output does not contain
    continuing: continuation pieces, which lengthen a word
    spellings: for each position of a text that the output begins with, the tokens that may follow
        there and the position after each; the text is complete at a position beyond the last one
    """

    max_length: int
    seed: int = 0
    prefix: tuple[int, ...] = ()
    required: tuple[tuple[int, ...], ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    continuing: frozenset[int] = frozenset()
    spellings: tuple[Mapping[int, int], ...] = ()

    @property
    def constrained(self) -> bool:
        return bool(self.prefix or self.spellings or self.required or self.forbidden)


@dataclass(frozen=True)
class Candidate:
    """A translation of a training sentence.

    tokens: ids without BOS and EOS
    quality: similarity to the reference, from 0 to 1
    """

    tokens: list[int]
    quality: float


@runtime_checkable
class Critic(Protocol):
    """Search, text and metrics, for objectives that evaluate whole translations."""

    def __call__(
        self,
        network: Any,
        batch: Batch,
        count: int,
        source: Literal["sample", "beam"],
        metric: Literal["bleu", "chrf"],
    ) -> list[list[Candidate]]:
        """At most `count` different translations of each sentence by the current network."""
        ...


@runtime_checkable
class SearchState(Protocol):
    """State that a search passes from step to step unread: one row per hypothesis."""

    def select(self, rows: Int[Tensor, " n"]) -> SearchState:
        """The state of the given rows, in the given order (rows may repeat)."""
        ...


@dataclass(frozen=True)
class Prediction:
    """Result of one step of N rows.

    log_probs: log-probabilities of the next token (natural logarithm); the receiver may overwrite
        them
    state: state after the step
    weights: attention weights of the step (None without attention)
    """

    log_probs: Float[Tensor, "N V"]
    state: SearchState
    weights: Float[Tensor, "N S"] | None = None


@dataclass(frozen=True)
class RankedPrediction:
    """The most probable next tokens of N rows.

    log_probs: their log-probabilities, largest first
    tokens: the tokens
    ends: log-probability of EOS
    state: state after the step
    weights: attention of the step (None without attention)
    """

    log_probs: Float[Tensor, "N k"]
    tokens: Int[Tensor, "N k"]
    ends: Float[Tensor, " N"]
    state: SearchState
    weights: Float[Tensor, "N S"] | None = None


@runtime_checkable
class Step(Protocol):
    """Interface of a model for a search: one step for N rows, in the order of their sentences.

    device: device of the tensors
    mask: real source positions of the sentences (None without attention)

    A step may offer faster ways: see nmt/search/shortcuts.py.
    """

    device: torch.device
    mask: Bool[Tensor, "B S"] | None

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        """The prediction after the given tokens, one per row.

        Without `layout`, all sentences have equally many rows.
        """
        ...

    def keep(self, sentences: Int[Tensor, " b"]) -> Step:
        """The step for some of the sentences; states passed to it must hold only their rows."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """A search that chooses among its hypotheses by their texts, after detokenisation."""

    def rerank(
        self, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
    ) -> list[tuple[Hypothesis, str]]:
        """The best of one sentence's hypotheses with their texts, best first."""
        ...


@runtime_checkable
class Search(Protocol):
    """A strategy to find good outputs under a `Step`, independent of the model."""

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first.

        step: interface of the model
        state: initial state, one row per sentence
        requests: constraints of each sentence

        Raises ValueError for constraints that the search does not support.
        """
        ...
