"""Batches of sentences of similar length, shuffled as a pure function of (seed, epoch).

Sentences are shuffled, cut into pools of many batches, sorted by length within each pool and cut
into batches. Then the batches are shuffled. There is little padding, and each epoch combines
other sentences.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from nmt.data.ragged import Corpus, Ragged, RaggedChain, Rows
from nmt.data.worker_processes import end_with_parent
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import BOS, EOS, PAD, Batch, Pictures
from nmt.foundation.ranges import Count, Size

ReadPictures = Callable[[Sequence[str]], Pictures]
"""Reads pictures by their names, in the form that the encoder of a network needs."""
PREFETCHED = 8
"""Batches that a process makes before they are needed."""


class Batching:
    """Rule by which sentences are cut into batches; one of `sentences` and `tokens` is 0.

    sentences: number of sentences in a batch.
    tokens: number of positions of a batch on either side, EOS and padding included; a longer
        sentence is a batch of its own.
    pool: batches that are sorted together; larger pools mean less padding and less randomness.

    Raises ValueError unless exactly one of `sentences` and `tokens` is 0.
    """

    def __init__(self, *, sentences: Count = 80, tokens: Count = 0, pool: Size = 200) -> None:
        if bool(sentences) == bool(tokens):
            raise ValueError(
                f"batching.sentences={sentences}, batching.tokens={tokens}: set exactly one of "
                "them, the other to 0"
            )
        self.sentences = sentences
        self.tokens = tokens
        self.pool = pool

    def usual(self, source: np.ndarray, target: np.ndarray) -> int:
        """Number of pairs in a usual batch, given the lengths of both sides."""
        return self.sentences or max(1, self.tokens // (int(max(source.mean(), target.mean())) + 1))

    def indices(
        self, source: np.ndarray, target: np.ndarray, seed: int, epoch: int
    ) -> list[np.ndarray]:
        """Batches of indices; every index exactly once.

        source: lengths of the source sentences.
        target: lengths of the target sentences.
        seed: seed of the run.
        epoch: number of the epoch.
        """
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(source))
        pool_size = self.usual(source, target) * self.pool
        batches: list[np.ndarray] = []
        # Sorting within pools, not all sentences, combines other sentences in each epoch.
        for start in range(0, len(order), pool_size):
            pool = order[start : start + pool_size]
            batches += self._cut(pool[_by_length(source[pool], target[pool])], source, target)
        return [batches[i] for i in rng.permutation(len(batches))]

    def in_order(self, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
        """Batches from the longest to the shortest, for evaluation; every index exactly once."""
        return self._cut(_by_length(source, target), source, target)[::-1]

    def _cut(self, order: np.ndarray, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
        if self.sentences:
            return [order[i : i + self.sentences] for i in range(0, len(order), self.sentences)]
        lengths = np.maximum(source, target)[order] + 1  # EOS included
        batches = []
        start = 0
        longest = 0
        for i, length in enumerate(lengths.tolist()):
            longest = max(longest, length)
            if i > start and longest * (i + 1 - start) > self.tokens:
                batches.append(order[start:i])
                start = i
                longest = length
        return [*batches, order[start:]]


def _by_length(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Order by target length, then by source length, ascending and descending in turn.

    The turns make neighbours similar where the target length changes.
    """
    return np.lexsort((np.where(target % 2, source, -source), target))


def collate(corpus: Corpus, rows: Rows, read_pictures: ReadPictures | None = None) -> Batch:
    """Some pairs as one padded batch: EOS after every sentence, BOS before the inputs.

    corpus: encoded pairs.
    rows: numbers of the pairs.
    read_pictures: reads the pictures of the pairs; None: the batch has none.
    """
    source, source_lengths = pad(corpus.source, rows)  # [B, S], [B]
    targets, target_lengths = pad(corpus.target, rows)  # [B, T], [B]
    # The inputs are the targets one step later, without EOS.
    inputs = targets.roll(1, dims=1)  # [B, T]
    inputs[inputs == EOS] = PAD
    inputs[:, 0] = BOS
    links = None
    if corpus.links is not None:
        links = _link_matrices(corpus.links.select(rows), targets.size(1), source.size(1))
    pictures = None
    if corpus.pictures is not None and read_pictures is not None:
        pictures = read_pictures([corpus.pictures[i] for i in rows])
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
    """Links of each pair as a matrix [B, T, S]; rows with links have sum 1.

    links: s₁ t₁ s₂ t₂ … of each pair.
    targets, sources: T and S.
    """
    matrices = np.zeros((len(links), targets, sources), np.float32)  # [B, T, S]
    positions = links.ids.reshape(-1, 2).astype(np.int64)  # [links, 2], source before target
    pair_numbers = np.repeat(np.arange(len(links)), links.lengths // 2)  # [links]
    matrices[pair_numbers, positions[:, 1], positions[:, 0]] = 1
    return torch.from_numpy(matrices / np.maximum(1, matrices.sum(2, keepdims=True)))


def pad(
    sequences: Ragged | RaggedChain | Sequence[Sequence[int]], rows: Rows, end: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Some sequences as a matrix, with padding after each.

    sequences: all sequences.
    rows: numbers of the n sequences.
    end: whether EOS is appended to each.

    Returns ids [n, L] and lengths [n], EOS included.
    """
    if not isinstance(sequences, Ragged | RaggedChain):
        sequences = Ragged.of(sequences)
    ids, lengths = sequences.padded(rows, columns=int(end))  # [n, L], [n]
    ids[np.arange(ids.shape[1]) >= lengths[:, None]] = PAD
    if end:
        ids[np.arange(len(ids)), lengths] = EOS
    return torch.from_numpy(ids), torch.from_numpy(lengths + end)


def prefetched(batches: Any, indices: Sequence[int], processes: int) -> Iterator[Any]:
    """Some of the batches, made when or before they are needed.

    batches: makes a batch by its index.
    indices: indices of the batches.
    processes: number of processes that make them ahead of time; 0: none.

    Raises the UserError of a batch with its own text, from whichever process.
    """
    if not processes or len(indices) < 2:
        return (batches[i] for i in indices)

    def made(index: int) -> Any:
        try:
            return batches[index]
        except UserError as error:
            return error  # if it were raised, the loader would put a traceback into its text

    loader: Any = torch.utils.data.DataLoader(
        indices,  # type: ignore[arg-type]
        batch_size=None,
        sampler=range(len(indices)),
        num_workers=min(processes, len(indices)),
        prefetch_factor=PREFETCHED,
        collate_fn=made,  # type: ignore[arg-type]
        multiprocessing_context="fork",
        pin_memory=torch.cuda.is_available(),
        worker_init_fn=end_with_parent,
    )
    return map(_raised, loader)


def _raised(result: Any) -> Any:
    """A batch. Raises it if it is a UserError."""
    if isinstance(result, UserError):
        raise result
    return result


def padding_share(batches: Sequence[np.ndarray], *sides: np.ndarray) -> float:
    """Share of positions that are padding.

    batches: indices of the sentences of each batch.
    sides: lengths of all sentences, for each side, without EOS, which counts as real.
    """
    sizes = [lengths[batch] + 1 for batch in batches for lengths in sides]
    padded = sum(int(size.max()) * len(size) for size in sizes)
    return 1 - sum(int(size.sum()) for size in sizes) / padded
