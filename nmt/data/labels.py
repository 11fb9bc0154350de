"""Label sets and classification metrics: accuracy, precision, recall and F1 (van Rijsbergen 1979).

Metrics are computed from multi-hot Boolean matrices [texts, labels], for single-label and
multi-label data alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class LabelSet:
    """Set of all labels in a classification data set.

    names: label names in sorted order
    several: whether a text may have any number of labels instead of exactly one
    """

    names: tuple[str, ...]
    several: bool

    @staticmethod
    def of(rows: Iterable[Sequence[str]], several: bool) -> "LabelSet":
        """Collects all labels that occur in the data.

        rows: labels of each text
        several: whether a text may have any number of labels
        """
        return LabelSet(tuple(sorted({name for row in rows for name in row})), several)

    def unseen(self, rows: Iterable[Sequence[str]]) -> list[str]:
        """Returns the labels in `rows` that are not in this label set, in sorted order."""
        return sorted({name for row in rows for name in row} - set(self.names))

    def table(self, rows: Sequence[Sequence[str]]) -> np.ndarray:
        """Returns the labels of each text as a multi-hot Boolean matrix [texts, labels]. Labels
        outside this label set are ignored.
        """
        columns = {name: i for i, name in enumerate(self.names)}
        table = np.zeros((len(rows), len(self.names)), bool)
        for i, row in enumerate(rows):
            table[i, [columns[name] for name in row if name in columns]] = True
        return table

    def losses(
        self, logits: Float[Tensor, "B L"], gold: Bool[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """Returns the cross-entropy of each text in nats; for multi-label data, the sum over
        labels."""
        if self.several:
            return torch.nn.functional.binary_cross_entropy_with_logits(
                logits, gold.to(logits.dtype), reduction="none"
            ).sum(1)
        return -(torch.log_softmax(logits, 1) * gold).sum(1)

    def probabilities(self, logits: Float[Tensor, "B L"]) -> Float[Tensor, "B L"]:
        """Returns label probabilities: a softmax for single-label data, a sigmoid of each logit for
        multi-label data."""
        return logits.sigmoid() if self.several else logits.softmax(1)

    def chosen(self, probabilities: np.ndarray) -> np.ndarray:
        """Returns the predicted labels as a multi-hot Boolean matrix [texts, labels].

        Predicts the most probable label or, for multi-label data, all labels with a probability
        above 0.5.
        """
        if self.several:
            return probabilities > 0.5
        return np.arange(len(self.names)) == probabilities.argmax(1, keepdims=True)


def report(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, Any]:
    """Computes classification metrics in per cent, with 0 / 0 counted as 0.

    gold, predicted: labels of each text as multi-hot Boolean matrices [texts, labels]
    names: label names

    Returns accuracy (texts whose labels are all correct), macro-F1 (mean over the labels that occur
    in gold or prediction), and precision, recall, F1 and number of texts of each label.
    """
    hits = (gold & predicted).sum(0)  # [labels]
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
