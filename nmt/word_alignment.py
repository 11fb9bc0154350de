"""From attention over pieces to an alignment of words.

The weight between two words is the sum over the source word's pieces and the mean over the target word's. What is given
to `</s>`, and what `</s>` gives, is kept apart: it says where the translation began and ended, not what means what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


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


def merge(weights: np.ndarray, source_words: Sequence[int], target_words: Sequence[int]) -> WordAlignment:
    """weights [target pieces + </s>, source pieces + </s>]; for each piece the number of its word, from 0."""
    sources, targets = (max(words, default=-1) + 1 for words in (source_words, target_words))
    into = np.zeros((len(source_words), sources))
    into[np.arange(len(source_words)), list(source_words)] = 1.0
    of = np.zeros((targets, len(target_words)))
    of[list(target_words), np.arange(len(target_words))] = 1.0
    of /= np.maximum(1.0, of.sum(1, keepdims=True))
    pieces = weights[:-1]
    return WordAlignment(of @ pieces[:, :-1] @ into, of @ pieces[:, -1], weights[-1, :-1] @ into)
