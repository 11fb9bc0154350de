"""Text in, labels out, and the words that decided. All code that classifies uses this file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch

from nmt.data.documents import Documents, collate_texts, encode_documents, sentences
from nmt.data.lines import check_lines
from nmt.drawing.word_importance import Classified
from nmt.foundation.progress import Progress
from nmt.model.seq2label import Seq2Label
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

log = logging.getLogger(__name__)
BATCH_TOKENS = 8000
"""Positions of a batch."""


class TextClassifier:
    """A model, in evaluation mode, and its tokenizer. Texts longer than `max_tokens` are cut, with a warning. The weights
    must not change while the classifier is in use."""

    def __init__(self, model: Seq2Label, tokenizer: Tokenizer, *, max_tokens: int) -> None:
        self.model, self.tokenizer, self.max_tokens = model, tokenizer, max_tokens

    def __repr__(self) -> str:
        return f"TextClassifier({', '.join(self.model.labels.names[:8])}, {type(self.model.pooling).__name__.lower()})"

    @property
    def attends(self) -> bool:
        """Whether there are importances to show."""
        return self.model.pooling.attends

    @overload
    def classify(self, lines: str, units: Units = "word") -> Classified: ...  # type: ignore[overload-overlap]
    @overload
    def classify(self, lines: Sequence[str], units: Units = "word") -> list[Classified]: ...
    def classify(
        self, lines: str | Sequence[str], units: Units = "word"
    ) -> Classified | list[Classified]:
        """One answer per line; a string gives one answer. A line without words is classified like a text that is only
        EOS."""
        if isinstance(lines, str):
            return self.classify([lines], units)[0]
        lines = check_lines(lines)
        documents = encode_documents(
            lines, self.tokenizer, self.model.pooling.splits, self.max_tokens
        )
        if documents.cut:
            log.warning(
                "%s texts have more than %s tokens: the rest is not read",
                documents.cut,
                self.max_tokens,
            )
        probabilities, weights = self._read(documents)
        chosen = self.model.labels.chosen(probabilities)
        names = self.model.labels.names
        seen = [
            self._importances(line, documents, i, weights, units) for i, line in enumerate(lines)
        ]
        return [
            Classified(
                labels=tuple(name for name, is_one in zip(names, chosen[i], strict=True) if is_one),
                probabilities=dict(zip(names, map(float, probabilities[i]), strict=True)),
                words=seen[i][0],
                importances=seen[i][1],
            )
            for i in range(len(lines))
        ]

    def probabilities(self, lines: str | Sequence[str]) -> np.ndarray:
        """[texts, labels]; [labels] for a string."""
        if isinstance(lines, str):
            return self.probabilities([lines])[0]
        return self._read(
            encode_documents(
                check_lines(lines), self.tokenizer, self.model.pooling.splits, self.max_tokens
            )
        )[0]

    @torch.inference_mode()
    def _read(self, documents: Documents) -> tuple[np.ndarray, list[np.ndarray] | None]:
        """Probabilities [texts, labels], and for each row the attention of its tokens, the mean over the hops."""
        if self.model.training:
            raise ValueError("the model is in training mode; call model.eval() first")
        device = next(self.model.parameters()).device
        found = np.zeros((len(documents), len(self.model.labels.names)))
        weights: list[np.ndarray] | None = [np.zeros(0)] * len(documents.rows)
        with Progress("labelling", len(documents), "texts") as step:
            for indices in _batches(documents):
                logits, pooled = self.model.read(collate_texts(documents, indices, None).to(device))
                found[indices] = self.model.labels.probabilities(logits.double()).cpu().numpy()
                step(len(indices))
                if pooled.weights is None or weights is None:
                    weights = None
                    continue
                rows = [
                    row
                    for i in indices
                    for row in range(documents.offsets[i], documents.offsets[i + 1])
                ]
                mean = pooled.weights.double().mean(1).cpu().numpy()
                for row, its in zip(rows, mean, strict=True):
                    weights[row] = its[: len(documents.rows[row])]
        return found, weights

    def _importances(
        self,
        line: str,
        documents: Documents,
        i: int,
        weights: list[np.ndarray] | None,
        units: Units,
    ) -> tuple[list[str], np.ndarray | None]:
        """The words of a text, or other units, and the share of the attention that each got."""
        shown, shares, row = list[str](), list[np.ndarray](), documents.offsets[i]
        for part in sentences(line) if self.model.pooling.splits else [line]:
            read = row < documents.offsets[i + 1] and bool(self.tokenizer.encode_source([part])[0])
            ids = documents.rows[row].tolist() if read else []
            labels, places = self.tokenizer.source_units(part, ids, units)
            own = np.zeros(len(labels))
            if read and weights is not None:
                for its, weight in zip(places, weights[row], strict=True):
                    own[its.start : its.stop] += weight / len(its)
            row += read
            shown += labels
            shares.append(own)
        total = np.concatenate(shares) if shares else np.zeros(0)
        return shown, total if weights is not None and total.any() else None


def _batches(documents: Documents) -> list[list[int]]:
    """Batches of about BATCH_TOKENS positions, from the longest text to the shortest."""
    lengths = documents.lengths
    batches: list[list[int]] = []
    for i in np.argsort(-lengths, kind="stable").tolist():
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(i)
    return batches


@dataclass(frozen=True)
class Removal:
    """How much the probability of the predicted label falls, on average over texts, when words are removed."""

    most_important: float
    random: float
    texts: int


def removal(
    classifier: TextClassifier, lines: Sequence[str], count: int = 3, draws: int = 5, seed: int = 0
) -> Removal:
    """Removes from each text its `count` most important words, or instead `count` random words (the mean over `draws`
    draws). Texts with fewer than 2 · `count` words are left out: too little would remain of them."""
    answers = [
        a
        for a in classifier.classify(lines)
        if a.importances is not None and len(a.words) >= 2 * count
    ]
    generator = np.random.default_rng(seed)
    guesses = [max(a.probabilities, key=a.probabilities.__getitem__) for a in answers]
    columns = [classifier.model.labels.names.index(guess) for guess in guesses]

    def fall(without: list[np.ndarray]) -> float:
        left = [
            " ".join(word for i, word in enumerate(a.words) if i not in set(places.tolist()))
            for a, places in zip(answers, without, strict=True)
        ]
        after = classifier.probabilities(left)[np.arange(len(left)), columns]
        return float(
            np.mean(
                [a.probabilities[guess] for a, guess in zip(answers, guesses, strict=True)] - after
            )
        )

    if not answers:
        return Removal(0.0, 0.0, 0)
    top = [np.argsort(-a.importances, kind="stable")[:count] for a in answers]  # type: ignore[operator]
    drawn = [
        [generator.choice(len(a.words), count, replace=False) for a in answers]
        for _ in range(draws)
    ]
    return Removal(fall(top), float(np.mean([fall(one) for one in drawn])), len(answers))
