"""Which pairs of a mixture (data/mix.py) come in which epoch: a pure function of (corpora, stages, seed, epoch).

Think of one endless row of pairs. In each stage, of every x pairs in it, ⌊w x⌋ come from a corpus of share w; a corpus is
gone through in a new order each time, and goes on in the next stage where it stopped. An epoch is as many pairs of that row
as the corpora have together, so that stages may begin and end within an epoch.
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
    """`rows`: the pairs of each corpus that are kept, as numbers of the whole training text."""

    mixture: Mixture
    rows: Mapping[str, np.ndarray]
    seed: int

    @classmethod
    def of(cls, mixture: Mixture, kept: np.ndarray, seed: int, batch: int = 1) -> Mixing:
        """Raises UserError if a corpus has no pairs left, or fewer than a `batch`, which would hold pairs twice."""
        rows, first = {}, 0
        used = {name for stage in mixture.stages for name in stage.weights}
        for name, pairs in mixture.corpora.items():
            begin, end = np.searchsorted(kept, [first, first + len(pairs)])
            rows[name], first = kept[begin:end], first + len(pairs)
            count = len(rows[name])
            if name in used and not count:
                raise UserError(
                    f"corpus {name}: no sentence pairs left in it. See filters.max_length and the other keys"
                )
            if name in used and count < batch:
                raise UserError(
                    f"corpus {name}: {count:,} sentence pairs are fewer than a batch of {batch:,}: lower batching.sentences "
                    "(or batching.tokens), or put it together with another corpus"
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
        """After how many epochs the last stage ends."""
        return sum(map(self.length, self.mixture.stages)) / self.size

    def epoch(self, number: int) -> list[tuple[Stage, np.ndarray]]:
        """The pairs of an epoch, stage by stage."""
        found, begin, end = [], number * self.size, (number + 1) * self.size
        first: float = 0
        read = dict.fromkeys(self.rows, 0)
        for stage in self.mixture.stages:
            length = self.length(stage)
            start, stop = max(begin - first, 0), min(end - first, length)
            rows = (
                self._between(stage, read, int(start), int(stop))
                if start < stop
                else np.empty(0, np.uint32)
            )
            if len(rows):
                found.append((stage, rows))
            if first + length >= end:
                break
            read = {name: done + _share(stage, name, int(length)) for name, done in read.items()}
            first += length
        return found

    def _between(self, stage: Stage, read: Mapping[str, int], start: int, stop: int) -> np.ndarray:
        """The pairs of a stage from `start` to `stop`; `read`: how many of each corpus came before the stage."""
        parts = [
            self._of(
                name,
                read[name] + _share(stage, name, start),
                read[name] + _share(stage, name, stop),
            )
            for name in stage.weights
        ]
        return np.concatenate(parts)

    def _of(self, name: str, start: int, stop: int) -> np.ndarray:
        """What comes from a corpus between two places of its own endless row."""
        rows, which, parts = self.rows[name], list(self.rows).index(name), [np.empty(0, np.uint32)]
        while start < stop:
            turn, place = divmod(start, len(rows))
            count = min(stop - start, len(rows) - place)
            order = np.random.default_rng([self.seed, which, turn]).permutation(len(rows))
            parts.append(rows[order[place : place + count]])
            start += count
        return np.concatenate(parts)


def _share(stage: Stage, name: str, pairs: int) -> int:
    """How many of the first pairs of a stage are from a corpus."""
    return math.floor(stage.weights.get(name, 0) * pairs)


def told(mixing: Mixing) -> Sequence[str]:
    """The stages in words, with how many epochs each lasts."""
    each = [(stage, mixing.length(stage) / mixing.size) for stage in mixing.mixture.stages]
    return [
        f"{stage}: {'all epochs left' if epochs == math.inf else f'{epochs:.2f} epochs'}"
        for stage, epochs in each
    ]
