"""Data classes and protocols exchanged between components: frozen, batch-first, typed with shapes.

Dimensions: B sentences, S source length, T target length, V vocabulary, E embedding, Q query
(decoder state), M memory, K key, H heads, G projected value, D readout, N search rows (B x beam
width). W is the number of source words, P of image positions, C of channels, L of labels. Masks are
Boolean; True marks a real token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad

PAD = 0
"""Token id of padding, the same in every vocabulary."""
UNK = 1
"""Token id of unknown words, the same in every vocabulary."""
BOS = 2
"""Token id of the beginning of a sentence, the same in every vocabulary."""
EOS = 3
"""Token id of the end of a sentence, the same in every vocabulary."""

Record = TypeVar("Record")


def map_tensors(value: Record, change: Callable[[Tensor], Tensor]) -> Record:
    """Returns a copy of a nested value with a function applied to every tensor.

    value: a tensor, or nested tuples, mappings and dataclasses that contain tensors; values of
        other types are kept
    change: function from a tensor to its replacement
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
    """Returns a copy of a nested value with all tensors moved to a device.

    Tensors reach a GPU through pinned memory, so that the host does not wait for the copy.
    """
    return map_tensors(record, lambda tensor: _on_device(tensor, device))


def _on_device(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.is_cpu and device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type == "cuda")


def to_host(*tensors: Tensor) -> list[np.ndarray]:
    """Returns tensors as NumPy arrays. All tensors on the GPU are copied together, so that the host
    waits only once.

    tensors: tensors on the CPU or on one GPU, with floating-point numbers or integers below 2⁵³
    """
    on_gpu = [tensor for tensor in tensors if not tensor.is_cpu]
    if not on_gpu:
        return [tensor.numpy() for tensor in tensors]
    together = torch.cat([tensor.double().flatten() for tensor in on_gpu]).cpu()
    parts = iter(together.split([tensor.numel() for tensor in on_gpu]))
    return [
        tensor.numpy() if tensor.is_cpu else next(parts).view(tensor.shape).to(tensor.dtype).numpy()
        for tensor in tensors
    ]


@dataclass(frozen=True)
class Pictures:
    """Batch of images or image feature grids, zero-padded at the bottom and on the right.

    values: colour channels or features of each position
    sizes: rows and columns of each image before padding; (0, 0) for a missing image
    even: True if all images have the same size, so that there is no padding
    """

    values: Float[Tensor, "B rows columns C"]
    sizes: Int[Tensor, "B 2"]
    even: bool


def padded_sources(
    source: Int[Tensor, "B S"], lengths: Int[Tensor, " B"], size: Callable[[int], int]
) -> tuple[Int[Tensor, "b s"], Int[Tensor, " b"]]:
    """Returns source token ids and lengths, padded to a rounded batch size B and length S.

    Each added sentence consists of EOS only.

    source: source token ids
    lengths: number of tokens of each source, including EOS
    size: function that rounds a size up
    """
    rows, words = source.shape
    source = pad(source, (0, size(words) - words, 0, size(rows) - rows), value=PAD)
    source[rows:, 0] = EOS
    return source, pad(lengths, (0, size(rows) - rows), value=1)


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded at the end with PAD.

    source: source token ids
    source_lengths: number of tokens of each source sentence, including EOS
    inputs: decoder input ids, starting with BOS
    targets: target ids, ending with EOS
    num_tokens: number of target tokens, including EOS
    links: weights of supervised word alignments; the weights of a target token sum to 1, or are all
        0 for a token without links; None for no alignments
    pictures: source images; None for text only
    """

    source: Int[Tensor, "B S"]
    source_lengths: Int[Tensor, " B"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    num_tokens: int
    links: Float[Tensor, "B T S"] | None = None
    pictures: Pictures | None = None

    def padded(self, size: Callable[[int], int]) -> Batch:
        """Returns the batch, padded to rounded numbers of sentences B, source positions S and
        target positions T.

        Each added sentence pair has EOS as source, and only padding as target.

        size: function that rounds a size up
        """
        rows, words = self.source.shape
        steps = self.targets.size(1)
        more_rows = size(rows) - rows
        more_words = size(words) - words
        more_steps = size(steps) - steps
        source, lengths = padded_sources(self.source, self.source_lengths, size)
        inputs = pad(self.inputs, (0, more_steps, 0, more_rows), value=PAD)
        inputs[rows:, 0] = BOS
        links = self.links
        return replace(
            self,
            source=source,
            source_lengths=lengths,
            inputs=inputs,
            targets=pad(self.targets, (0, more_steps, 0, more_rows), value=PAD),
            links=links
            if links is None
            else pad(links, (0, more_words, 0, more_steps, 0, more_rows)),
        )

    def repeated(self, times: int) -> Batch:
        """Returns the batch with each sentence pair repeated `times` times in adjacent rows."""
        repeated = map_tensors(self, lambda tensor: tensor.repeat_interleave(times, 0))
        return replace(repeated, num_tokens=times * self.num_tokens)


@dataclass(frozen=True)
class TextBatch:
    """B labelled texts in N rows (sentences), padded at the end with PAD.

    tokens: token ids of all rows
    lengths: number of tokens of each row
    counts: number of rows of each text
    labels: True for each label of a text; None if unknown
    num_tokens: number of texts B, over which the loss is averaged; named as in other batches
    """

    tokens: Int[Tensor, "N S"]
    lengths: Int[Tensor, " N"]
    counts: Int[Tensor, " B"]
    labels: Bool[Tensor, "B L"] | None
    num_tokens: int


@runtime_checkable
class TrainingBatch(Protocol):
    """Interface of a batch passed to an objective; losses are averaged over `num_tokens`."""

    @property
    def num_tokens(self) -> int: ...


@runtime_checkable
class Batches(Protocol):
    """Interface for the batches of one epoch, which are read by index."""

    def __len__(self) -> int: ...
    def read(self, indices: Sequence[int]) -> Iterator[TrainingBatch]:
        """Yields the batches with the given indices, which may be prepared ahead of time."""
        ...


def _selected(record: Record, rows: Int[Tensor, " n"]) -> Record:
    """Returns a copy of a nested value with the given rows of every tensor.

    rows: row numbers, on any device
    """

    def selected(tensor: Tensor) -> Tensor:
        nonlocal rows
        rows = to_device(rows, tensor.device)  # copied once
        return tensor.index_select(0, rows)

    return map_tensors(record, selected)


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
        slots = rows.new_zeros(sentences * layout.width, *rows.shape[1:])  # [B·W, T, X]
        rows = slots.index_copy_(0, layout.slots, rows)
    return rows.reshape(sentences, -1, rows.size(-1))


def gather_rows(
    groups: Float[Tensor, "B n X"], steps: int, layout: Layout | None = None
) -> Float[Tensor, "N T X"]:
    """Returns rows (hypotheses) that `scatter_rows` has grouped by sentence, [B, n, X] → [N, T, X].

    groups: rows of each sentence, concatenated along the second dimension
    steps: number of decoder steps T of each row
    layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
    """
    rows = groups.reshape(-1, steps, groups.size(-1))  # [B·W, T, X], or [N, T, X]
    return rows if layout is None else rows.index_select(0, layout.slots)


@dataclass(frozen=True)
class Encoded:
    """Encoder output for B sources.

    values: annotation vector of each source position
    mask: True for real positions
    final_state: vector that summarises each source, from the final encoder states
    grids: rows and columns of each image, whose positions follow the words row by row; None for no
        images
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
    values: annotations that attention averages, with H heads concatenated
    projected_values: `values` multiplied by the decoder's context weights if the decoder is
        recurrent, otherwise `values`
    decoder_init: input of the bridge, which computes the initial decoder state
    source_words: source tokens, set by `Seq2Seq.encode`; None if the output layer does not read
        source tokens
    """

    encoded: Encoded
    keys: Float[Tensor, "B S K"]
    values: Float[Tensor, "B S HM"]
    projected_values: Float[Tensor, "B S HG"]
    decoder_init: Float[Tensor, "B M"]
    source_words: SourceWords | None = None

    @property
    def mask(self) -> Bool[Tensor, "B S"]:
        """Boolean mask [B, S], True for real source positions."""
        return self.encoded.mask

    @property
    def heads(self) -> int:
        """Number of attention heads H of `values`."""
        return self.values.size(-1) // self.encoded.values.size(-1)

    def by_head(self, values: Float[Tensor, "B S HX"]) -> Float[Tensor, "B HS X"]:
        """Concatenates the H heads of `values` along the positions instead of the features. One
        batched matrix multiplication with attention weights [N, T, H·S] then sums over all heads.
        """
        if self.heads == 1:
            return values
        # [B, S, H·X] → [B, S, H, X] → [B, H, S, X] → [B, H·S, X]
        return values.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(1, 2)

    def select(self, sentences: Int[Tensor, " b"]) -> Prepared:
        """Returns the memory of the sentences with the given indices, on any device."""
        return _selected(self, sentences)


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

    def select(self, rows: Int[Tensor, " n"]) -> State:
        """Returns the state of the given rows, on any device, in the given order; rows may
        repeat."""
        return _selected(self, rows)


@dataclass(frozen=True)
class DecoderOutput:
    """Decoder output for T steps.

    readout: features from which the output layer predicts tokens
    weights: attention weights, averaged over the heads; None for no attention
    state: decoder state after the last step
    heads: attention weights of each head, each row with sum 1; None for a single head
    """

    readout: Float[Tensor, "N T D"]
    weights: Float[Tensor, "N T S"] | None
    state: State
    heads: Float[Tensor, "N H T S"] | None = None


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    tokens: target token ids without BOS and EOS
    log_prob: natural logarithm of the probability, including EOS
    score: log-probability after the search's penalties
    """

    tokens: list[int]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Loss:
    """Loss of one batch, in nats.

    total: training loss summed over the tokens, with gradient
    nll: negative log-likelihood of the same tokens without label smoothing, detached
    num_tokens: number of tokens
    """

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    num_tokens: int


@dataclass(frozen=True)
class Request:
    """Search constraints for one sentence, in target token ids.

    max_length: maximum number of tokens, excluding EOS
    seed: random seed for sampling, independent of the sentence's position in the batch
    required: token sequences that the output must contain, not followed by tokens in `continuing`
    forbidden: token sequences that the output must not contain
    continuing: ids of subwords that continue a word
    spellings: segmentations of a text that the output must begin with; maps, for each text
        position, the allowed tokens to the position after the token
    """

    max_length: int
    seed: int = 0
    required: tuple[tuple[int, ...], ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    continuing: frozenset[int] = frozenset()
    spellings: tuple[Mapping[int, int], ...] = ()

    @property
    def constrained(self) -> bool:
        return bool(self.spellings or self.required or self.forbidden)


@dataclass(frozen=True)
class Candidate:
    """Translation of a training sentence, found by sampling or search.

    tokens: target token ids without BOS and EOS
    quality: similarity to the reference, 0 to 1
    """

    tokens: list[int]
    quality: float


@runtime_checkable
class CandidateGenerator(Protocol):
    """Interface of functions that generate and score translations for sequence-level objectives."""

    def __call__(
        self,
        network: Any,
        batch: Batch,
        count: int,
        source: Literal["sample", "beam"],
        metric: Literal["bleu", "chrf"],
    ) -> list[list[Candidate]]:
        """Returns up to `count` distinct translations of each sentence by the current network."""
        ...


@runtime_checkable
class SearchState(Protocol):
    """Interface of the state that a search passes between decoder steps, one row per hypothesis."""

    def select(self, rows: Int[Tensor, " n"]) -> SearchState:
        """Returns the state of the given rows, which are on the CPU, in the given order; rows may
        repeat."""
        ...


@dataclass(frozen=True)
class Prediction:
    """Output of one decoder step for N rows.

    log_probs: natural log-probabilities of the next token; the caller may overwrite the tensor
    state: state after the step
    weights: attention weights of the step; None for no attention
    """

    log_probs: Float[Tensor, "N V"]
    state: SearchState
    weights: Float[Tensor, "N S"] | None = None


@dataclass(frozen=True)
class RankedPrediction:
    """The k most probable next tokens of N rows.

    log_probs: natural log-probabilities, in descending order
    tokens: token ids in the order of `log_probs`
    ends: log-probability of EOS
    state: state after the step
    weights: attention weights of the step; None for no attention
    """

    log_probs: Float[Tensor, "N k"]
    tokens: Int[Tensor, "N k"]
    ends: Float[Tensor, " N"]
    state: SearchState
    weights: Float[Tensor, "N S"] | None = None


@runtime_checkable
class Step(Protocol):
    """Interface through which a search calls a model. Each call computes one decoder step for N
    search rows, ordered by sentence.

    Searches keep tokens, slots and numbers of rows on the CPU. A step copies these tensors to its
    device, and returns predictions on its device.

    device: device of the tensors
    mask: True for real source positions of each sentence; None for no attention

    The optional faster methods of a step are declared in nmt/search/shortcuts.py.
    """

    device: torch.device
    mask: Bool[Tensor, "B S"] | None

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        """Returns the prediction after one given token per row.

        tokens: previous token of each row
        state: state before the step
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        ...

    def keep(self, sentences: Int[Tensor, " b"]) -> Step:
        """Returns the step for a subset of the sentences; later states contain only rows of the
        subset.
        """
        ...


@runtime_checkable
class Reranker(Protocol):
    """Interface of a search that selects hypotheses by their detokenised texts."""

    def rerank(
        self, hypotheses: Sequence[Hypothesis], texts: Sequence[str]
    ) -> list[tuple[Hypothesis, str]]:
        """Returns the best hypotheses of one sentence with their texts, best first."""
        ...


@runtime_checkable
class Search(Protocol):
    """Interface of a search algorithm over a `Step`, independent of the model."""

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each sentence, best first.

        step: function of the model that computes one decoder step
        state: initial state, one row per sentence
        requests: constraints of each sentence

        Raises ValueError for constraints that the search does not support.
        """
        ...
