"""The pairs of a mixture (data/sources/mix.py) in each epoch: a pure function of (corpora, stages, seed, epoch).

The schedule is an infinite sequence of pairs. In each stage, of every x pairs in it, ⌊w x⌋ come from
a corpus of share w. A corpus is read in a new order in each pass, and continues in the next stage
where it stopped. An epoch has as many pairs of the schedule as the corpora have together, so that
stages may begin and end within an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data import Mixture, Stage
from nmt.foundation.errors import UserError


@dataclass(frozen=True)
class Mixing:
    """Schedule of a mixture.

    mixture: corpora and stages.
    rows: pairs of each corpus that passed the filters, as numbers of all training pairs.
    seed: seed of the run.
    """

    mixture: Mixture
    rows: Mapping[str, np.ndarray]
    seed: int

    @classmethod
    def of(cls, mixture: Mixture, kept: np.ndarray, seed: int, batch: int = 1) -> Mixing:
        """The schedule of a mixture. Raises UserError if a corpus has too few pairs.

        mixture: corpora and stages.
        kept: all training pairs that passed the filters, in ascending order.
        seed: seed of the run.
        batch: pairs of a batch; a smaller corpus would repeat pairs in a batch.
        """
        rows = {}
        first = 0
        used = {name for stage in mixture.stages for name in stage.weights}
        for name, pairs in mixture.corpora.items():
            begin, end = np.searchsorted(kept, [first, first + len(pairs)])
            rows[name] = kept[begin:end]
            first += len(pairs)
            count = len(rows[name])
            if name in used and not count:
                raise UserError(
                    f"corpus {name}: no sentence pairs left in it. See filters.max_length and the "
                    "other keys"
                )
            if name in used and count < batch:
                raise UserError(
                    f"corpus {name}: {count:,} sentence pairs are fewer than a batch of {batch:,}: "
                    "lower batching.sentences (or batching.tokens), or put it together with "
                    "another corpus"
                )
        return cls(mixture, rows, seed)

    @property
    def size(self) -> int:
        """Pairs of an epoch."""
        return sum(map(len, self.rows.values()))

    def length(self, stage: Stage) -> float:
        """Pairs of a stage."""
        if stage.passes is None:
            return math.inf
        return math.ceil(stage.passes * len(self.rows[stage.until]) / stage.weights[stage.until])

    @property
    def epochs(self) -> float:
        """Epochs until the last stage ends."""
        return sum(map(self.length, self.mixture.stages)) / self.size

    def epoch(self, number: int) -> list[tuple[Stage, np.ndarray]]:
        """The pairs of an epoch, stage by stage."""
        begin = number * self.size
        end = begin + self.size
        segments = []
        stage_begin: float = 0
        read = dict.fromkeys(self.rows, 0)  # pairs of each corpus before the stage
        for stage in self.mixture.stages:
            length = self.length(stage)
            start = int(max(begin - stage_begin, 0))
            stop = int(min(end - stage_begin, length))
            if start < stop:
                parts = [
                    self._rows_of(
                        corpus=name,
                        start=read[name] + _share(stage, name, start),
                        stop=read[name] + _share(stage, name, stop),
                    )
                    for name in stage.weights
                ]
                rows = np.concatenate(parts)
                if len(rows):
                    segments.append((stage, rows))
            stage_begin += length
            if stage_begin >= end:
                break
            read = {name: count + _share(stage, name, int(length)) for name, count in read.items()}
        return segments

    def _rows_of(self, corpus: str, start: int, stop: int) -> np.ndarray:
        """Items [start, stop) of a corpus's infinite sequence."""
        rows = self.rows[corpus]
        number = list(self.rows).index(corpus)
        parts = [np.empty(0, np.uint32)]
        while start < stop:
            turn, position = divmod(start, len(rows))
            count = min(stop - start, len(rows) - position)
            order = np.random.default_rng([self.seed, number, turn]).permutation(len(rows))
            parts.append(rows[order[position : position + count]])
            start += count
        return np.concatenate(parts)

    def described(self) -> Sequence[str]:
        """The stages in words, with the epochs of each."""
        lines = []
        for stage in self.mixture.stages:
            epochs = self.length(stage) / self.size
            duration = "all epochs left" if epochs == math.inf else f"{epochs:.2f} epochs"
            lines.append(f"{stage}: {duration}")
        return lines


def _share(stage: Stage, corpus: str, pairs: int) -> int:
    """Pairs of a corpus among the first pairs of a stage."""
    return math.floor(stage.weights.get(corpus, 0) * pairs)
