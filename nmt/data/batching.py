"""Batches of similar length, shuffled as a pure function of (seed, epoch).

Sentences are shuffled, cut into pools of many batches, sorted by length within each pool and cut into batches. Then the
batches are shuffled. So there is little padding, and each epoch puts different sentences together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from nmt.data.pool import end_with_parent
from nmt.data.ragged import Corpus, Ragged, RaggedChain
from nmt.foundation.interfaces import BOS, EOS, PAD, Batch, Pictures
from nmt.foundation.ranges import Count, Size

ReadPictures = Callable[[Sequence[str]], Pictures]
"""Pictures by their names, as the encoder of a network reads them."""


class Batching:
    """Either `sentences` per batch, or as many as fit into `tokens` positions, on the source side and on the target
    side (EOS and padding counted; a sentence that does not fit is a batch of its own); 0 turns one of the two off.
    `pool`: batches that are sorted together; larger pools mean less padding, less randomness."""

    def __init__(self, *, sentences: Count = 80, tokens: Count = 0, pool: Size = 200) -> None:
        if bool(sentences) == bool(tokens):
            raise ValueError(
                f"batching.sentences={sentences}, batching.tokens={tokens}: set exactly one of them, the other to 0"
            )
        self.sentences, self.tokens, self.pool = sentences, tokens, pool

    def usual(self, source: np.ndarray, target: np.ndarray) -> int:
        """Pairs of a usual batch, given the lengths of both sides."""
        return self.sentences or max(1, self.tokens // (int(max(source.mean(), target.mean())) + 1))

    def indices(
        self, source: np.ndarray, target: np.ndarray, seed: int, epoch: int
    ) -> list[np.ndarray]:
        """Batches of indices, given the lengths of both sides; every index exactly once."""
        rng = np.random.default_rng([seed, epoch])
        order, per_batch = rng.permutation(len(source)), self.usual(source, target)
        batches: list[np.ndarray] = []
        for start in range(0, len(order), per_batch * self.pool):
            pool = order[start : start + per_batch * self.pool]
            batches += self._cut(pool[_by_length(source[pool], target[pool])], source, target)
        return [batches[i] for i in rng.permutation(len(batches))]

    def in_order(self, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
        """Batches from the longest to the shortest, for evaluation; every index exactly once."""
        return self._cut(_by_length(source, target), source, target)[::-1]

    def _cut(self, order: np.ndarray, source: np.ndarray, target: np.ndarray) -> list[np.ndarray]:
        if self.sentences:
            return [order[i : i + self.sentences] for i in range(0, len(order), self.sentences)]
        sizes = np.maximum(source, target)[order].tolist()
        batches, start, longest = [], 0, 0
        for i, size in enumerate(sizes):
            longest = max(longest, size + 1)
            if i > start and longest * (i + 1 - start) > self.tokens:
                batches.append(order[start:i])
                start, longest = i, size + 1
        return [*batches, order[start:]]


def _by_length(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Sorts by target length, then by source length, ascending and descending in turn, so neighbours are similar."""
    return np.lexsort((np.where(target % 2, source, -source), target))


def collate(
    corpus: Corpus, indices: Sequence[int] | np.ndarray, read: ReadPictures | None = None
) -> Batch:
    """The chosen pairs as one padded batch: EOS after every sentence, BOS before the inputs; with their pictures if there is
    something to `read` them."""
    source, lengths = pad(corpus.source, indices)
    targets, target_lengths = pad(corpus.target, indices)
    inputs = torch.full_like(targets, PAD)
    inputs[:, 1:] = targets[:, :-1]
    inputs[inputs == EOS] = PAD
    inputs[:, 0] = BOS
    links = (
        None
        if corpus.links is None
        else _dense(corpus.links, indices, targets.size(1), source.size(1))
    )
    return Batch(
        source=source,
        source_lengths=lengths,
        inputs=inputs,
        targets=targets,
        num_tokens=int(target_lengths.sum()),
        links=links,
        pictures=None
        if corpus.pictures is None or read is None
        else read([corpus.pictures[i] for i in indices]),
    )


def ahead(batches: Any, indices: Sequence[int], processes: int) -> Iterator[Any]:
    """Some of the batches; if there are `processes` for it, they are made before they are needed."""
    if not processes or len(indices) < 2:
        return (batches[i] for i in indices)
    loader: Any = torch.utils.data.DataLoader(
        batches, batch_size=None, sampler=indices, num_workers=min(processes, len(indices)), prefetch_factor=8,
        collate_fn=_itself, multiprocessing_context="fork", pin_memory=torch.cuda.is_available(),
        worker_init_fn=end_with_parent,
    )  # fmt: skip
    return iter(loader)


def _itself(batch: Any) -> Any:
    return batch


def _dense(
    links: Ragged, indices: Sequence[int] | np.ndarray, targets: int, sources: int
) -> torch.Tensor:
    """Links as a matrix for each pair, rows that have any with sum 1."""
    found = np.zeros((len(indices), targets, sources), np.float32)
    for row, i in zip(found, indices, strict=True):
        its = links[i].reshape(-1, 2).astype(np.int64)
        row[its[:, 1], its[:, 0]] = 1
    return torch.from_numpy(found / np.maximum(1, found.sum(2, keepdims=True)))


def pad(
    sequences: Ragged | RaggedChain | Sequence[Sequence[int]],
    indices: Sequence[int] | np.ndarray,
    end: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """([n L] ids with EOS appended (unless `end` is false) and padding after it, [n] lengths, EOS counted)."""
    rows = [sequences[i] for i in indices]
    lengths = np.fromiter((len(row) + end for row in rows), np.int64, len(rows))
    padded = np.full((len(rows), int(lengths.max())), PAD, np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
        if end:
            padded[i, len(row)] = EOS
    return torch.from_numpy(padded), torch.from_numpy(lengths)


def padding_share(batches: list[np.ndarray], *sides: np.ndarray) -> float:
    """Share of positions that are padding, over both sides, EOS counted as real."""
    real = total = 0
    for batch in batches:
        for lengths in sides:
            real += int(lengths[batch].sum()) + len(batch)
            total += (int(lengths[batch].max()) + 1) * len(batch)
    return 1 - real / total
