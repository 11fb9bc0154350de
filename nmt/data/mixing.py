"""Selects the sentence pairs of each epoch from a data mixture (nmt/data/sources/mix.py).

The pairs are a pure function of (corpora, stages, seed, epoch). The mixture is a sequence of
positions, divided into stages. Up to position x of a stage, ⌊w x⌋ pairs of a corpus with weight w
are selected. The weights of a stage sum to 1; because of rounding down, up to n - 1 pairs fewer
than positions are selected from n corpora. Each pass over a corpus has a new random order and
continues across stage boundaries. An epoch has as many positions as all corpora have pairs; stages
may begin and end within an epoch.
"""

import math
from collections.abc import Sequence

import numpy as np

from nmt.data import Mixture, Stage
from nmt.foundation.errors import UserError


class Mixing:
    """Schedule of a data mixture over the epochs of a run.

    mixture: corpora and stages
    kept: indices of all training pairs that passed the filters, in ascending order
    seed: random seed of the run
    batch: number of pairs per batch, and minimum number of pairs per corpus

    Raises UserError if a corpus has fewer pairs than a batch, because most batches would then
    contain a pair several times. Batches can also contain copies of a pair if the weight of a small
    corpus is large.
    """

    def __init__(self, mixture: Mixture, kept: np.ndarray, seed: int, batch: int = 1) -> None:
        self.mixture = mixture
        self.seed = seed
        ends = np.cumsum([len(pairs) for pairs in mixture.corpora.values()])
        parts = np.split(kept, np.searchsorted(kept, ends[:-1]))
        self.rows = dict(zip(mixture.corpora, parts, strict=True))
        """Indices of the training pairs of each corpus."""
        used = {name for stage in mixture.stages for name in stage.weights}
        for name, rows in self.rows.items():
            if name in used and len(rows) < batch:
                raise UserError(
                    f"corpus {name}: only {len(rows):,} sentence pairs remain after filtering, "
                    f"fewer than one batch ({batch:,}); lower batching.sentences or "
                    "batching.tokens, relax the filters, or merge the corpus with another corpus"
                )
        self.size = len(kept)
        """Number of positions per epoch: total number of training pairs."""
        self.epochs = sum(map(self.length, mixture.stages)) / self.size
        """Number of epochs until the end of the last stage; infinite if the last stage has no end.
        """

    def length(self, stage: Stage) -> float:
        """Returns the number of positions in a stage of the mixture."""
        if stage.passes is None:
            return math.inf
        return math.ceil(stage.passes * len(self.rows[stage.until]) / stage.weights[stage.until])

    def epoch(self, number: int) -> list[tuple[Stage, np.ndarray]]:
        """Returns the training pair indices of an epoch, grouped by stage."""
        begin = number * self.size
        segments = []
        first = 0  # number of positions in earlier stages
        # number of pairs read from each corpus in earlier stages
        read = dict.fromkeys(self.rows, 0)
        for stage in self.mixture.stages:
            length = self.length(stage)
            # Overlap of the stage with the epoch, counted from the start of the stage.
            start = max(begin - first, 0)
            stop = int(min(begin + self.size - first, length))
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
            if stop < length:
                break
            first += int(length)
            read = {name: count + _share(stage, name, int(length)) for name, count in read.items()}
        return [(stage, rows) for stage, rows in segments if len(rows)]

    def _rows_of(self, corpus: str, start: int, stop: int) -> np.ndarray:
        """Returns the pair indices at positions [start, stop) of a corpus's infinite sequence."""
        rows = self.rows[corpus]
        number = list(self.rows).index(corpus)
        turns = range(start // len(rows), math.ceil(stop / len(rows)))
        # Each pass over a corpus has its own random order.
        orders = [
            np.random.default_rng([self.seed, number, turn]).permutation(len(rows))
            for turn in turns
        ]
        first = turns.start * len(rows)
        # np.concatenate needs at least one array
        order = np.concatenate([np.arange(0), *orders])[start - first : stop - first]
        return rows[order]

    def described(self) -> Sequence[str]:
        """Returns a description of each stage, with its length in epochs."""
        return [
            f"{stage}: all remaining epochs"
            if stage.passes is None
            else f"{stage}: {self.length(stage) / self.size:.2f} epochs"
            for stage in self.mixture.stages
        ]


def _share(stage: Stage, corpus: str, position: int) -> int:
    """Returns the number of pairs of a corpus that are selected up to a position of a stage."""
    return math.floor(stage.weights.get(corpus, 0) * position)
