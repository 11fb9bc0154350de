"""Data structures of training: special tokens, batches, losses and candidate translations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from nmt.foundation.interfaces.tensors import map_tensors

PAD = 0
"""Token id of padding, the same in every vocabulary."""
UNK = 1
"""Token id of unknown words, the same in every vocabulary."""
BOS = 2
"""Token id of the beginning of a sentence, the same in every vocabulary."""
EOS = 3
"""Token id of the end of a sentence, the same in every vocabulary."""


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
        0 for a token without links; None if the data has no alignments
    pictures: source images; None for text only
    """

    source: Int[Tensor, "B S"]
    source_lengths: Int[Tensor, " B"]
    inputs: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    num_tokens: int
    links: Float[Tensor, "B T S"] | None = None
    pictures: Pictures | None = None

    def padded(self, size: Callable[[int], int]) -> "Batch":
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
        return replace(
            self,
            source=source,
            source_lengths=lengths,
            inputs=inputs,
            targets=pad(self.targets, (0, more_steps, 0, more_rows), value=PAD),
            links=None
            if self.links is None
            else pad(self.links, (0, more_words, 0, more_steps, 0, more_rows)),
        )

    def repeated(self, times: int) -> "Batch":
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
    def num_tokens(self) -> int:
        """Number of tokens by which the loss is divided."""


@runtime_checkable
class Batches(Protocol):
    """Interface for the batches of one epoch, which are read by index."""

    def __len__(self) -> int:
        """Number of batches."""

    def read(self, indices: Sequence[int]) -> Iterator[TrainingBatch]:
        """Yields the batches with the given indices, which may be prepared ahead of time."""


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
        """Returns up to `count` distinct translations of each sentence, generated by `network`."""
