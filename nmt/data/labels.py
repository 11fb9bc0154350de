"""Sets of labels, and their metrics: accuracy, precision, recall and F1 (van Rijsbergen 1979).

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
    """All labels of a data set.

    names: the labels, sorted.
    several: whether a text may have any number of labels, not exactly one.
    """

    names: tuple[str, ...]
    several: bool

    @staticmethod
    def of(rows: Iterable[Sequence[str]], several: bool) -> LabelSet:
        """All labels that occur in `rows`, which are the labels of each text."""
        return LabelSet(tuple(sorted({name for row in rows for name in row})), several)

    def unseen(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """Labels in `rows` that are not in this set, sorted."""
        return sorted({name for row in rows for name in row} - set(self.names))

    def table(self, rows: Sequence[Sequence[str]]) -> np.ndarray:
        """Boolean [texts, labels]; labels that are not in this set are left out."""
        columns = {name: i for i, name in enumerate(self.names)}
        table = np.zeros((len(rows), len(self.names)), bool)
        for i, row in enumerate(rows):
            table[i, [columns[name] for name in row if name in columns]] = True
        return table

    def losses(
        self, logits: Float[Tensor, "B L"], gold: Bool[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """Cross-entropy of each text in nats: of its label, or the sum over all labels."""
        if self.several:
            return torch.nn.functional.binary_cross_entropy_with_logits(
                logits, gold.to(logits.dtype), reduction="none"
            ).sum(1)
        return -(torch.log_softmax(logits, 1) * gold).sum(1)

    def probabilities(self, logits: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """Probability of each label: softmax for one label, independent sigmoids for several."""
        return logits.sigmoid() if self.several else logits.softmax(1)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Boolean [texts, labels]: the most probable label, or all with more than 0.5."""
        if self.several:
            return probabilities > 0.5
        return np.arange(len(self.names)) == probabilities.argmax(1, keepdims=True)


def report(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Figures of predicted labels, in per cent, with 0 / 0 counted as 0.

    gold: Boolean [texts, labels].
    predicted: Boolean [texts, labels].
    names: the labels.

    Returns the accuracy (texts whose labels are all right), macro-F1 (the mean over the labels that
    occur in gold or prediction), and precision, recall, F1 and number of texts of each label.
    """
    hits = (gold & predicted).sum(0)  # [labels], as all below
    num_predicted = predicted.sum(0)
    num_gold = gold.sum(0)
    f1 = 200 * hits / np.maximum(1, num_predicted + num_gold)
    occurs = (num_predicted + num_gold) > 0
    figures = {
        "precision": 100 * hits / np.maximum(1, num_predicted),
        "recall": 100 * hits / np.maximum(1, num_gold),
        "f1": f1,
    }
    return {
        "accuracy": float(100 * (gold == predicted).all(1).mean()),
        "macro_f1": float(f1[occurs].mean()) if occurs.any() else 0.0,
        "labels": {
            name: {figure: float(values[i]) for figure, values in figures.items()}
            | {"texts": int(num_gold[i])}
            for i, name in enumerate(names)
        },
    }
