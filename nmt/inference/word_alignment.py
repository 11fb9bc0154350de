"""Word alignments: computed from attention over pieces, combined from two directions, compared with a gold standard.

The weight between two words is the sum over the source word's pieces and the mean over the target word's. The weights
to and from `</s>` are kept apart: they show where the translation begins and ends, not which word translates which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nmt.data.links import Links


@dataclass(frozen=True)
class WordAlignment:
    """weights[t][s] between target and source words; `to_end[t]` is what target word t gives to the source's `</s>`,
    `at_end[s]` what source word s gets while the target's `</s>` is predicted. Each row plus its `to_end` sums to 1."""

    weights: np.ndarray
    to_end: np.ndarray
    at_end: np.ndarray

    def pairs(self) -> list[tuple[int, int]]:
        """(source word, target word): every target word with the source word that it attends to most."""
        if not self.weights.size:
            return []
        return sorted((int(s), t) for t, s in enumerate(self.weights.argmax(1)))


def by_word(
    weights: np.ndarray,
    source_words: Sequence[range],
    target_words: Sequence[range],
    sizes: tuple[int, int] | None = None,
) -> np.ndarray:
    """Weights [target words + </s>, source words + </s>] from weights between pieces. `source_words`, `target_words`:
    the numbers of the words that each piece is a part of, from 0; `sizes`: source and target word counts, if words may have
    no pieces. What a source piece gets is shared by its words."""
    sources, targets = sizes or (_last(source_words) + 1, _last(target_words) + 1)
    into = np.zeros((len(source_words) + 1, sources + 1))
    for piece, its in enumerate([*source_words, range(sources, sources + 1)]):
        into[piece, its] = 1.0 / len(its)
    of = np.zeros((targets + 1, len(target_words) + 1))
    for piece, its in enumerate([*target_words, range(targets, targets + 1)]):
        of[its, piece] = 1.0
    of /= np.maximum(1.0, of.sum(1, keepdims=True))
    return of @ weights @ into


def _last(words: Sequence[range]) -> int:
    return max((its.stop - 1 for its in words), default=-1)


def merge(
    weights: np.ndarray,
    source_words: Sequence[range],
    target_words: Sequence[range],
    sizes: tuple[int, int] | None = None,
) -> WordAlignment:
    """As `by_word`, with the weights of </s> kept apart."""
    whole = by_word(weights, source_words, target_words, sizes)
    return WordAlignment(whole[:-1, :-1], whole[:-1, -1], whole[-1, :-1])


Symmetrization = Literal["intersection", "union", "grow_diag"]


def symmetrize(forward: Links, backward: Links, how: Symmetrization) -> Links:
    """One alignment from those of both directions (Och & Ney 2003). grow_diag starts from the intersection. It adds
    links of the union that are neighbours (diagonal ones too) of a link it has, if their source word or their target
    word has no link yet (Koehn et al. 2003)."""
    both, either = forward & backward, forward | backward
    if how != "grow_diag":
        return both if how == "intersection" else either
    grown = set(both)
    while True:
        sources, targets = {s for s, _ in grown}, {t for _, t in grown}
        added = False
        for s, t in sorted(grown):
            for near in [(s + i, t + j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]:
                if (
                    near in either
                    and near not in grown
                    and (near[0] not in sources or near[1] not in targets)
                ):
                    grown.add(near)
                    sources.add(near[0])
                    targets.add(near[1])
                    added = True
        if not added:
            return frozenset(grown)


def error_rate(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> float:
    """Alignment error rate of a corpus (Och & Ney 2003, section 7): 1 − (|A∩S| + |A∩P|) / (|A| + |S|); every sure link is
    possible. 0 is perfect; 0 too if there is nothing to align."""
    hits = total = 0
    for a, s, p in zip(found, sure, possible, strict=True):
        hits += len(a & s) + len(a & (p | s))
        total += len(a) + len(s)
    return 1 - hits / total if total else 0.0
