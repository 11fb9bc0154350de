"""Sets of labels; how well they are predicted: accuracy; precision, recall and F1 (van Rijsbergen 1979) per label.

Everything is counted on Boolean tables [texts, labels], whether a text has one label or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class LabelSet:
    """All labels by name; `several`: a text may have any number of them, otherwise exactly one."""

    names: tuple[str, ...]
    several: bool

    @staticmethod
    def of(rows: Iterable[Sequence[str]], several: bool) -> LabelSet:
        """All labels that occur, sorted."""
        return LabelSet(tuple(sorted({name for row in rows for name in row})), several)

    def unseen(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """Labels in `rows` that are not in this set, sorted."""
        return sorted({name for row in rows for name in row} - set(self.names))

    def table(self, rows: Sequence[Sequence[str]]) -> np.ndarray:
        """Boolean [texts, labels]; labels that are not in this set are left out."""
        place = {name: i for i, name in enumerate(self.names)}
        found = np.zeros((len(rows), len(self.names)), bool)
        for i, row in enumerate(rows):
            found[i, [place[name] for name in row if name in place]] = True
        return found

    def losses(
        self, logits: Float[Tensor, "B L"], gold: Bool[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """Nats per text: cross-entropy of the one label, or the sum of the binary cross-entropies of all labels."""
        if self.several:
            wanted = gold.to(logits.dtype)
            return torch.nn.functional.binary_cross_entropy_with_logits(
                logits, wanted, reduction="none"
            ).sum(1)
        return -(torch.log_softmax(logits, 1) * gold).sum(1)

    def probabilities(self, logits: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """The probability of each label: softmax if a text has one label, independent sigmoids if several."""
        return logits.sigmoid() if self.several else logits.softmax(1)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Boolean [texts, labels]: the most probable label, or all that are more probable than not."""
        if self.several:
            return probabilities > 0.5
        return np.arange(len(self.names)) == probabilities.argmax(1, keepdims=True)


def report(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Accuracy (texts whose predicted labels are exactly the gold labels), macro-F1 (the mean over the labels that
    occur in gold or prediction), and figures for each label; in per cent, with 0 / 0 counted as 0."""
    hits, found, there = (gold & predicted).sum(0), predicted.sum(0), gold.sum(0)
    precision, recall = (100 * hits / np.maximum(1, count) for count in (found, there))
    f1 = 200 * hits / np.maximum(1, found + there)
    occurs = (found + there) > 0
    return {
        "accuracy": float(100 * (gold == predicted).all(1).mean()),
        "macro_f1": float(f1[occurs].mean()) if occurs.any() else 0.0,
        "labels": {
            name: {
                "precision": float(precision[i]), "recall": float(recall[i]), "f1": float(f1[i]), "texts": int(there[i]),
            }
            for i, name in enumerate(names)
        },
    }  # fmt: skip
