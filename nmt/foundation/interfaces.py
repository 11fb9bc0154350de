"""The values passed between the parts: frozen, batch-first, typed with shapes.

Dimensions: B sentences, S source length, T target length, E embedding, Q query (decoder state), M memory, K key,
V vocabulary, N search rows (B x beam), D readout; of pictures, P positions, C channels. Masks are Boolean, True = real
token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

PAD, UNK, BOS, EOS = 0, 1, 2, 3
"""Ids of the four special symbols, the same in every vocabulary."""


Record = TypeVar("Record")


def each(record: Record, change: Callable[[Tensor], Tensor], **others: Any) -> Record:
    """A dataclass with all its tensors changed, those of its pictures too, and with other values for other fields."""
    held: dict[str, Any] = {f.name: getattr(record, f.name) for f in fields(record)}  # type: ignore[arg-type]
    changed: dict[str, Any] = {
        name: change(value) for name, value in held.items() if isinstance(value, Tensor)
    }
    changed |= {
        name: each(value, change) for name, value in held.items() if isinstance(value, Pictures)
    }
    return replace(record, **changed, **others)  # type: ignore[type-var]


def moved(record: Record, device: torch.device) -> Record:
    """A dataclass with all its tensors on a device."""
    return each(record, lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True)
class Pictures:
    """Images, or grids of features, padded with zeros at the bottom and on the right. `sizes`: rows and columns of
    each, 0 and 0 for no picture; `even`: all have the same size, so nothing is padding."""

    values: Float[Tensor, "B rows columns C"]
    sizes: Int[Tensor, "B 2"]
    even: bool


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded at the end with PAD. `num_tokens` counts target tokens, EOS included. `links`: given
    alignments, each row shared equally by its links; rows of words without links are zeros (None: none are given).
    `pictures`: what the sources show (None: they are text)."""

    source: Int[Tensor, "B S"]
    source_lengths: Int[Tensor, " B"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    num_tokens: int
    links: Float[Tensor, "B T S"] | None = None
    pictures: Pictures | None = None

    def to(self, device: torch.device) -> Batch:
        return moved(self, device)

    def repeated(self, times: int) -> Batch:
        """Each pair several times, one beside the other."""
        return each(
            self,
            lambda tensor: tensor.repeat_interleave(times, 0),
            num_tokens=times * self.num_tokens,
        )


@dataclass(frozen=True)
class TextBatch:
    """B texts in N rows, padded at the end with PAD; text b has counts[b] rows. `labels`: the labels of each text
    (None: unknown); `num_tokens` counts texts."""

    tokens: Int[Tensor, "N S"]
    lengths: Int[Tensor, " N"]
    counts: Int[Tensor, " B"]
    labels: Bool[Tensor, "B L"] | None
    num_tokens: int

    def to(self, device: torch.device) -> TextBatch:
        return moved(self, device)


@runtime_checkable
class TrainingBatch(Protocol):
    """What an objective is given; a loss is reported per `num_tokens`."""

    @property
    def num_tokens(self) -> int: ...
    def to(self, device: torch.device, /) -> Any: ...


@runtime_checkable
class Batches(Protocol):
    """The batches of one epoch, by index."""

    def __len__(self) -> int: ...
    def read(self, indices: Sequence[int]) -> Iterator[TrainingBatch]:
        """Some of them, one after another; they may be made ahead of time."""
        ...


@dataclass(frozen=True)
class Layout:
    """Which place each row of a search has: each of B sentences has `width` places, some of which may be empty.

    `places[i]` is the place of row i among all B·width; ascending.
    """

    width: int
    places: Int[Tensor, " N"]


@dataclass(frozen=True)
class Memory:
    """The encoder's output for B sentences.

    `keys` (memory projected for scoring), `inputs` (memory projected to what a recurrent decoder adds to its gates) and
    `start` (what the decoder's first state is made from) are made once per sentence by `Decoder.prepare`; `source`
    holds the source words where they can be copied, `embedded` their vectors where words are predicted from them. `grids`:
    rows and columns of the positions that are places of a picture; they stand row by row, after the words if there are any
    (None: there are no pictures). Several rows may read the memory of the same sentence; it is never copied for them. The
    rows are in the order of their sentences: equally many per sentence, or as `layout` says.
    """

    values: Float[Tensor, "B S HM"]
    mask: Bool[Tensor, "B S"]
    summary: Float[Tensor, "B M"]
    keys: Float[Tensor, "B S K"] | None = None
    inputs: Float[Tensor, "B S G"] | None = None
    start: Float[Tensor, "B M"] | None = None
    source: Int[Tensor, "B W"] | None = None
    embedded: Float[Tensor, "B W E"] | None = None
    grids: Int[Tensor, "B 2"] | None = None
    layout: Layout | None = None

    def select(self, sentences: Int[Tensor, " b"]) -> Memory:
        """The memory of some of the sentences."""
        held: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        kept: dict[str, Any] = {
            k: v.index_select(0, sentences) for k, v in held.items() if isinstance(v, Tensor)
        }
        return replace(self, **kept)

    @property
    def heads(self) -> int:
        """The number of heads: each position has one vector of size M per head, side by side in `values`."""
        return self.values.size(-1) // self.summary.size(-1)

    def by_head(self, held: Float[Tensor, "B S HX"]) -> Float[Tensor, "B HS X"]:
        """[B S H·X] → [B H·S X]: heads unfolded into extra positions, so that one batched product serves all heads."""
        if self.heads == 1:
            return held
        return held.unflatten(-1, (self.heads, -1)).transpose(1, 2).flatten(1, 2)

    def spread(self, rows: Shaped[Tensor, "N T X"]) -> Shaped[Tensor, "B n X"]:
        """The rows grouped by sentence: n = T · (rows per sentence), with zeros in empty places."""
        sentences = self.mask.size(0)
        if self.layout is not None:
            grid = rows.new_zeros(sentences * self.layout.width, *rows.shape[1:])
            rows = grid.index_copy_(0, self.layout.places, rows)
        return rows.reshape(sentences, -1, rows.size(-1))

    def gather(self, grid: Float[Tensor, "B n X"], steps: int) -> Float[Tensor, "N T X"]:
        """The inverse of `spread`, for rows with T = `steps`."""
        rows = grid.reshape(-1, steps, grid.size(-1))
        return rows if self.layout is None else rows.index_select(0, self.layout.places)


def _pick(value: Any, rows: Tensor) -> Any:
    if isinstance(value, Tensor):
        return value.index_select(0, rows)
    if isinstance(value, Mapping):
        return {name: _pick(held, rows) for name, held in value.items()}
    return tuple(_pick(v, rows) for v in value)


@dataclass(frozen=True, kw_only=True)
class State:
    """Decoder state: each decoder declares its fields, tensors or nested tuples of tensors, with rows first.

    `cells[i]` is the recurrent state of layer i: (h,) for a GRU, (h, c) for an LSTM, each Float[N Q]; `attention` is what
    the attention remembers from step to step. `masks`: which features of what are dropped at every step (variational
    dropout, in training only).
    """

    cells: tuple[tuple[Tensor, ...], ...]
    attention: tuple[tuple[Tensor, ...], ...] = ()
    masks: Mapping[str, Tensor] = field(default_factory=dict)

    def select(self, rows: Int[Tensor, " n"]) -> State:
        """The state of the given rows, in the given order (rows may repeat)."""
        return replace(self, **{f.name: _pick(getattr(self, f.name), rows) for f in fields(self)})


@dataclass(frozen=True)
class DecoderOutput:
    """`readout`: features to predict words from; `weights`: attention, the mean over the heads (None without
    attention); `state`: after the last step; `heads`: with several heads, the weights of each, each row with sum 1."""

    readout: Float[Tensor, "N T D"]
    weights: Float[Tensor, "N T S"] | None
    state: State
    heads: Float[Tensor, "N H T S"] | None = None


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: tokens without BOS and EOS, natural-log probability (EOS included), penalised score."""

    tokens: list[int]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Loss:
    """`total` is what is differentiated: a sum over `num_tokens` tokens, in nats; `nll` is the plain negative
    log-likelihood of the same tokens (no smoothing), detached."""

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    num_tokens: int


@dataclass(frozen=True)
class Request:
    """What a search must do for one sentence, in target ids.

    At most `max_length` tokens, EOS not counted. The output begins with `prefix`, contains every sequence of `required`,
    and contains none of `forbidden`. No continuation piece (`continuing`: the pieces that lengthen a word) may follow a
    required sequence. `seed` is for searches that sample: it depends on the sentence, not on its place in the batch.
    """

    max_length: int
    seed: int = 0
    prefix: tuple[int, ...] = ()
    required: tuple[tuple[int, ...], ...] = ()
    forbidden: tuple[tuple[int, ...], ...] = ()
    continuing: frozenset[int] = frozenset()

    @property
    def constrained(self) -> bool:
        return bool(self.prefix or self.required or self.forbidden)


@dataclass(frozen=True)
class Candidate:
    """A translation of a training sentence: its tokens without BOS and EOS; how like the reference it is, from 0 to 1."""

    tokens: list[int]
    quality: float


@runtime_checkable
class Critic(Protocol):
    """What an objective that looks at whole translations knows of search, text and metrics."""

    def __call__(
        self,
        network: Any,
        batch: Batch,
        count: int,
        source: Literal["sample", "beam"],
        metric: Literal["bleu", "chrf"],
    ) -> list[list[Candidate]]:
        """At most `count` different translations of each sentence by the network as it is now, judged."""
        ...


@runtime_checkable
class SearchState(Protocol):
    """What a search carries from step to step without looking into it: one row for each hypothesis."""

    def select(self, rows: Int[Tensor, " n"]) -> SearchState:
        """The state of the given rows, in the given order (rows may repeat)."""
        ...


@dataclass(frozen=True)
class Prediction:
    """One step of N rows: log-probabilities of the next token (natural logarithm; the receiver may overwrite them), the
    state after the step, and the attention of the step (None without attention)."""

    log_probs: Float[Tensor, "N V"]
    state: SearchState
    weights: Float[Tensor, "N S"] | None = None


@runtime_checkable
class Step(Protocol):
    """Everything that a search knows of a model: one step for N rows, in the order of their sentences. `mask`: the real
    source positions of its sentences (None without attention)."""

    device: torch.device
    mask: Bool[Tensor, "B S"] | None

    def __call__(
        self, tokens: Int[Tensor, " N"], state: SearchState, layout: Layout | None = None
    ) -> Prediction:
        """The prediction after the given tokens, one per row. Without `layout`, all sentences have as many rows."""
        ...

    def keep(self, sentences: Int[Tensor, " b"]) -> Step:
        """The step for some of the sentences only; states passed to it must hold only their rows."""
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
    """A strategy to find good outputs under a `Step`; it knows no model."""

    def __call__(
        self, step: Step, state: SearchState, requests: Sequence[Request]
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each sentence, best first. `state` holds one row per sentence.

        Raises ValueError if it cannot do what is requested."""
        ...
