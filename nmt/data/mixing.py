"""Pairs of a mixture (nmt/data/sources/mix.py) in each epoch.

They are a pure function of (corpora, stages, seed, epoch). The schedule is an infinite sequence of
pairs. In each stage, of every x pairs in it, ⌊w x⌋ come from a corpus of share w. A corpus is read
in a new order in each pass, and continues in the next stage where it stopped. An epoch has as many
pairs of the schedule as the corpora have together. Stages may begin and end within an epoch.
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
        kept: numbers of all training pairs that passed the filters, in ascending order.
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
            if name in used and len(rows[name]) < batch:
                raise UserError(
                    f"corpus {name}: {len(rows[name]):,} sentence pairs are fewer than a batch of "
                    f"{batch:,}: lower batching.sentences (or batching.tokens), or put it together "
                    "with another corpus. See also filters.max_length and the other filters"
                )
        return cls(mixture, rows, seed)

    @property
    def size(self) -> int:
        """Number of pairs of an epoch."""
        return sum(map(len, self.rows.values()))

    def length(self, stage: Stage) -> float:
        """Number of pairs of a stage."""
        if stage.passes is None:
            return math.inf
        return math.ceil(stage.passes * len(self.rows[stage.until]) / stage.weights[stage.until])

    @property
    def epochs(self) -> float:
        """Epochs until the last stage ends."""
        return sum(map(self.length, self.mixture.stages)) / self.size

    def epoch(self, number: int) -> list[tuple[Stage, np.ndarray]]:
        """The pairs of an epoch, stage by stage, as numbers of training pairs."""
        begin = number * self.size
        end = begin + self.size
        segments = []
        read = dict.fromkeys(self.rows, 0)  # pairs of each corpus before the stage
        for stage in self.mixture.stages:
            length = self.length(stage)
            # The part of the stage that lies in the epoch.
            start = max(begin, 0)
            stop = int(min(end, length))
            if start < stop:
                parts = [
                    self._rows_of(
                        corpus=name,
                        start=read[name] + _share(stage, name, start),
                        stop=read[name] + _share(stage, name, stop),
                    )
                    for name in stage.weights
                ]
                segments.append((stage, np.concatenate(parts)))
            if end <= length:
                break
            # From here on, the epoch is counted from the end of the stage.
            begin -= int(length)
            end -= int(length)
            read = {name: count + _share(stage, name, int(length)) for name, count in read.items()}
        return [(stage, rows) for stage, rows in segments if len(rows)]

    def _rows_of(self, corpus: str, start: int, stop: int) -> np.ndarray:
        """Items [start, stop) of a corpus's infinite sequence."""
        rows = self.rows[corpus]
        number = list(self.rows).index(corpus)
        parts = [np.empty(0, np.uint32)]
        while start < stop:
            turn, position = divmod(start, len(rows))
            # Each pass over a corpus has an order of its own.
            order = np.random.default_rng([self.seed, number, turn]).permutation(len(rows))
            order = order[position : position + stop - start]
            parts.append(rows[order])
            start += len(order)
        return np.concatenate(parts)

    def described(self) -> Sequence[str]:
        """Description of each stage, with its length in epochs."""
        return [
            f"{stage}: all epochs left"
            if stage.passes is None
            else f"{stage}: {self.length(stage) / self.size:.2f} epochs"
            for stage in self.mixture.stages
        ]


def _share(stage: Stage, corpus: str, pairs: int) -> int:
    """Number of pairs of a corpus among the first `pairs` pairs of a stage."""
    return math.floor(stage.weights.get(corpus, 0) * pairs)
