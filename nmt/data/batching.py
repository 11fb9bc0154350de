"""Batches of sentence pairs with similar lengths, shuffled as a pure function of seed and epoch.

Pairs are shuffled, divided into pools of many batches, sorted by length within each pool, and cut
into batches, which are shuffled. The result has little padding and different batches in each epoch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nmt.data.ragged import Corpus, Ragged, RaggedChain, Rows
from nmt.foundation.interfaces import BOS, EOS, PAD, Batch, Pictures
from nmt.foundation.ranges import Count, Size

ReadPictures = Callable[[Sequence[str]], Pictures]
"""Function that reads images by name and returns them in the encoder's input format."""


@dataclass(kw_only=True)
class Batching:
    """Settings that determine the batches; exactly one of `sentences` and `tokens` is 0.

    sentences: number of sentence pairs per batch
    tokens: maximum token positions per batch and side, including EOS and padding; a longer pair
        forms its own batch
    pool: number of batches sorted together; larger pools give less padding and less randomness

    Raises ValueError unless exactly one of `sentences` and `tokens` is 0.
    """

    sentences: Count = 80
    tokens: Count = 0
    pool: Size = 200

    def __post_init__(self) -> None:
        if bool(self.sentences) == bool(self.tokens):
            raise ValueError(
                f"batching.sentences={self.sentences}, batching.tokens={self.tokens}: set exactly "
                "one of them to a positive number, the other to 0"
            )

    def mean_size(self, source: np.ndarray, target: np.ndarray) -> int:
        """Returns the approximate mean number of pairs per batch.

        source, target: sentence lengths in tokens
        """
        return self.sentences or max(1, self.tokens // (int(max(source.mean(), target.mean())) + 1))

    def indices(
        self, source: np.ndarray, target: np.ndarray, seed: int, epoch: int
    ) -> list[np.ndarray]:
        """Returns the pair indices of each batch in an epoch; every pair appears exactly once.

        source, target: sentence lengths in tokens
        seed: random seed of the run
        epoch: index of the epoch, from 0
        """
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(source))
        pool_size = self.mean_size(source, target) * self.pool
        batches: list[np.ndarray] = []
        # Sorting within random pools gives different batches in each epoch.
        for pool in np.split(order, range(pool_size, len(order), pool_size)):
            batches += self._cut(pool[_by_length(source[pool], target[pool])], source, target)
        return [batches[i] for i in rng.permutation(len(batches))]

    def in_order(self, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
        """Returns the pair indices of each evaluation batch, longest pairs first."""
        return self._cut(_by_length(source, target), source, target)[::-1]

    def _cut(self, order: np.ndarray, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
        if self.sentences:
            return [order[i : i + self.sentences] for i in range(0, len(order), self.sentences)]
        lengths = np.maximum(source, target)[order] + 1  # sentence lengths in tokens, including EOS
        starts = [0]  # position of the first pair of each batch
        longest = 0
        for i, length in enumerate(lengths.tolist()):
            longest = max(longest, length)
            if i > starts[-1] and longest * (i + 1 - starts[-1]) > self.tokens:
                starts.append(i)
                longest = length
        return np.split(order, starts[1:])


def _by_length(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns indices sorted by target length, then by source length.

    Source lengths ascend for odd target lengths and descend for even target lengths, so that
    adjacent pairs stay similar where the target length changes.
    """
    return np.lexsort((np.where(target % 2, source, -source), target))


def collate(corpus: Corpus, rows: Rows, read_pictures: ReadPictures | None = None) -> Batch:
    """Builds a padded batch, with EOS after every sentence and BOS before the decoder inputs.

    corpus: encoded sentence pairs
    rows: indices of the pairs in the batch
    read_pictures: function that reads the images of the pairs; None for a batch without images
    """
    source, source_lengths = pad(corpus.source, rows)  # [B, S], [B]
    targets, target_lengths = pad(corpus.target, rows)  # [B, T], [B]
    # Decoder inputs are the targets shifted by one step, without EOS.
    inputs = targets.roll(1, dims=1)  # [B, T]
    inputs[inputs == EOS] = PAD
    inputs[:, 0] = BOS
    links = (
        None
        if corpus.links is None
        else _link_matrices(corpus.links.select(rows), targets.size(1), source.size(1))
    )
    pictures = (
        None
        if corpus.pictures is None or read_pictures is None
        else read_pictures([corpus.pictures[i] for i in rows])
    )
    return Batch(
        source=source,
        source_lengths=source_lengths,
        inputs=inputs,
        targets=targets,
        num_tokens=int(target_lengths.sum()),
        links=links,
        pictures=pictures,
    )


def _link_matrices(links: Ragged, targets: int, sources: int) -> torch.Tensor:
    """Returns alignment links as matrices [B, T, S]; the row of a target token sums to 1, or to 0
    without links.

    links: flat positions s₁ t₁ s₂ t₂ … of each pair
    targets, sources: padded target length T and source length S
    """
    matrices = np.zeros((len(links), targets, sources), np.float32)  # [B, T, S]
    positions = links.ids.reshape(-1, 2).astype(np.int64)  # [links, 2], source before target
    pair_numbers = np.repeat(np.arange(len(links)), links.lengths // 2)  # [links]
    matrices[pair_numbers, positions[:, 1], positions[:, 0]] = 1
    return torch.from_numpy(matrices / np.maximum(1, matrices.sum(2, keepdims=True)))


def pad(
    sequences: Ragged | RaggedChain | Sequence[Sequence[int]], rows: Rows, end: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns sequences as a padded matrix of ids [n, L] and their lengths [n].

    sequences: sequences of token ids
    rows: indices of the n sequences to return
    end: whether EOS is appended to each sequence; lengths then include EOS
    """
    if not isinstance(sequences, Ragged | RaggedChain):
        sequences = Ragged.of(sequences)
    selected = sequences.select(rows)
    lengths = selected.lengths  # [n]
    ids = np.full((len(lengths), int(lengths.max()) + end), PAD)  # [n, L]
    ids[np.arange(ids.shape[1]) < lengths[:, None]] = selected.ids
    if end:
        ids[np.arange(len(ids)), lengths] = EOS
    return torch.from_numpy(ids), torch.from_numpy(lengths + end)


def padding_share(batches: Sequence[np.ndarray], *sides: np.ndarray) -> float:
    """Returns the fraction of padding among all token positions of batches.

    batches: sentence indices of each batch
    sides: sentence lengths without EOS, one array per side; EOS counts as a real position
    """
    sizes = [lengths[batch] + 1 for batch in batches for lengths in sides]
    padded = sum(int(size.max()) * len(size) for size in sizes)
    return 1 - sum(int(size.sum()) for size in sizes) / padded
