"""Batches of an epoch, created on demand from prepared training data."""

import random
from collections.abc import Iterator, Sequence

import numpy as np

from nmt.data import Pairs, Stage, tag_of
from nmt.data.batching import Batching, ReadPictures, collate, padding_share
from nmt.data.mixing import Mixing
from nmt.data.modifiers import Modifier, applied
from nmt.data.preparation import PreparedData
from nmt.data.ragged import encode
from nmt.data.worker_processes import ordered_map
from nmt.foundation.interfaces import Batch

MEASURED = 1000
"""Number of batches from which the padding fraction is computed."""


class EpochBatches:
    """Batches of one epoch, created on demand as a pure function of (data, seed, epoch).

    With random segmentation, sentences are grouped by the lengths of their deterministic
    segmentation.

    data: prepared training data
    batching: settings that determine the batches
    seed: random seed of the run
    epoch: index of the epoch, from 0
    reader: function that reads the images of a batch; None for text only
    ahead: number of worker processes that prepare batches in advance
    mixing: schedule of a mixture; None for a single corpus
    """

    def __init__(
        self,
        data: PreparedData,
        batching: Batching,
        seed: int,
        epoch: int,
        reader: ReadPictures | None = None,
        ahead: int = 0,
        mixing: Mixing | None = None,
    ) -> None:
        self.data = data
        self.reader = reader
        self.ahead = ahead
        self.key = f"{seed} {epoch}"
        self.segmentation_seed = hash((seed, epoch)) % 2**31 if data.tokenizer.sampling else None
        self.modifiers: list[Sequence[Modifier]] = []  # the modifiers that apply to each batch
        self.indices: list[np.ndarray] = []  # the indices of the pairs in each batch
        segments: Sequence[tuple[Stage | None, np.ndarray]] = (
            [(None, data.kept)] if mixing is None else mixing.epoch(epoch)
        )
        source_lengths = data.train.source.lengths
        target_lengths = data.train.target.lengths
        for stage, rows in segments:  # a batch belongs to one stage
            batches = batching.indices(source_lengths[rows], target_lengths[rows], seed, epoch)
            self.indices += [rows[batch] for batch in batches]
            self.modifiers += [() if stage is None else stage.modifiers] * len(batches)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int, /) -> Batch:
        if self.segmentation_seed is None and not self.modifiers[i]:
            return collate(self.data.train, self.indices[i], self.reader)
        pairs = self.data.splits.train.select(self.indices[i])
        if self.modifiers[i]:
            pairs = self.modified_pairs(pairs, i)
        # Modified or randomly segmented text is encoded for each batch.
        corpus = encode(pairs, self.data.tokenizer, self.segmentation_seed)
        return collate(corpus, range(len(corpus)), self.reader)

    def modified_pairs(self, pairs: Pairs, i: int) -> Pairs:
        """Returns the pairs of batch `i`, changed by the modifiers of the batch's mixture stage.

        The changes are a pure function of (seed, epoch, batch).
        """
        rng = random.Random(f"{self.key} {i}")
        mixture = self.data.splits.mixture
        assert mixture is not None, "modifiers are supported by data=mix only"
        modified: list[tuple[str, str]] = []
        for source, target in zip(pairs.source, pairs.target, strict=True):
            tag = tag_of(source, mixture.tags)  # modifiers change only the text after the tag
            results = applied(self.modifiers[i], (source.removeprefix(tag), target), rng)
            modified += [(tag + text, translation) for text, translation in results]
        sources, targets = zip(*modified, strict=True)
        return Pairs(sources, targets, pairs.name)

    def read(self, indices: Sequence[int]) -> Iterator[Batch]:
        """Yields the batches with the given indices, in order."""
        processes = self.ahead if len(indices) > 1 else 0
        return ordered_map(self.__getitem__, indices, processes)

    @property
    def padding(self) -> float:
        """Fraction of padding among the token positions of the first MEASURED batches."""
        return padding_share(
            self.indices[:MEASURED], self.data.train.source.lengths, self.data.train.target.lengths
        )
