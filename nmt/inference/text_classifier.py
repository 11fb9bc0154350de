"""Text in, labels out, and the words that decided. All code that classifies uses this file."""

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
from nmt.inference.parallel import length_batches
from nmt.model.seq2label import Seq2Label
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units

log = logging.getLogger(__name__)
BATCH_TOKENS = 8000
"""Positions of a batch."""


@dataclass(frozen=True)
class Reading:
    """Output of the model for some documents.

    probabilities: [texts, labels]
    row_weights: [tokens] attention in each row, the mean over hops (None without attention)
    """

    probabilities: np.ndarray
    row_weights: list[np.ndarray] | None


class TextClassifier:
    """A model in evaluation mode and its tokenizer. The weights must not change while it is in use.

    model: classifier
    tokenizer: tokenizer of the network
    max_tokens: tokens of a text; longer ones are cut, with a warning
    """

    def __init__(self, model: Seq2Label, tokenizer: Tokenizer, *, max_tokens: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_tokens = max_tokens

    def __repr__(self) -> str:
        labels = ", ".join(self.model.labels.names[:8])
        return f"TextClassifier({labels}, {type(self.model.pooling).__name__.lower()})"

    @property
    def attends(self) -> bool:
        """Whether there are importances to show."""
        return self.model.pooling.attends

    @overload
    def classify(  # type: ignore[overload-overlap]
        self,
        lines: str,
        units: Units = "word",
    ) -> Classified: ...
    @overload
    def classify(self, lines: Sequence[str], units: Units = "word") -> list[Classified]: ...
    def classify(
        self, lines: str | Sequence[str], units: Units = "word"
    ) -> Classified | list[Classified]:
        """Returns one answer per line; a string gives one answer.

        lines: texts; one without words is classified like a text of a single EOS
        units: units of importances
        """
        if isinstance(lines, str):
            return self.classify([lines], units)[0]
        lines = check_lines(lines)
        documents = self._encode(lines)
        if documents.cut:
            log.warning(
                "%s texts have more than %s tokens: the rest is not read",
                documents.cut,
                self.max_tokens,
            )
        reading = self._read(documents)
        is_chosen = self.model.labels.chosen(reading.probabilities)  # [texts, labels]
        names = self.model.labels.names
        answers = []
        for i, line in enumerate(lines):
            words, importances = self._importances(line, documents, i, reading.row_weights, units)
            answer = Classified(
                labels=tuple(name for k, name in enumerate(names) if is_chosen[i, k]),
                probabilities=dict(zip(names, reading.probabilities[i].tolist(), strict=True)),
                words=words,
                importances=importances if importances.any() else None,
            )
            answers.append(answer)
        return answers

    def probabilities(self, lines: str | Sequence[str]) -> np.ndarray:
        """[texts, labels]; [labels] for a string."""
        if isinstance(lines, str):
            return self.probabilities([lines])[0]
        return self._read(self._encode(check_lines(lines))).probabilities

    def _encode(self, lines: Sequence[str]) -> Documents:
        splits = self.model.pooling.splits
        return encode_documents(lines, self.tokenizer, splits, self.max_tokens)

    @torch.inference_mode()
    def _read(self, documents: Documents) -> Reading:
        if self.model.training:
            raise ValueError("the model is in training mode; call model.eval() first")
        device = next(self.model.parameters()).device
        probabilities = np.zeros((len(documents), len(self.model.labels.names)))  # [texts, labels]
        row_weights = [np.zeros(0)] * len(documents.rows)  # [pieces] of each row
        lengths = documents.lengths.tolist()
        with Progress("labelling", len(documents), "texts") as step:
            for batch in length_batches(range(len(documents)), lengths, BATCH_TOKENS):
                texts = collate_texts(documents, batch, None).to(device)
                logits, pooled = self.model.read(texts)  # logits: [batch, labels]
                # [batch, labels]
                batch_probabilities = self.model.labels.probabilities(logits.double())
                probabilities[batch] = batch_probabilities.cpu().numpy()
                step(len(batch))
                if pooled.weights is not None:
                    means = pooled.weights.double().mean(1).cpu().numpy()  # [rows, S]
                    rows = (row for i in batch for row in _rows_of(documents, i))
                    for row, weights in zip(rows, means, strict=True):
                        row_weights[row] = weights[: len(documents.rows[row])]  # without padding
        return Reading(probabilities, row_weights if self.attends else None)

    def _importances(
        self,
        line: str,
        documents: Documents,
        number: int,
        row_weights: list[np.ndarray] | None,
        units: Units,
    ) -> tuple[list[str], np.ndarray]:
        """Units of one text, and the attention to each, from that to its pieces.

        line: text
        documents: encoded texts
        number: number of the text in `documents`
        row_weights: attention in each row
        units: units of the result
        """
        words: list[str] = []
        shares = [np.zeros(0)]
        rows = iter(_rows_of(documents, number))
        for sentence in sentences(line) if self.model.pooling.splits else [line]:
            # A sentence without pieces has no row, nor has one behind the last token that is read.
            row = next(rows, None) if self.tokenizer.encode_source([sentence])[0] else None
            ids = [] if row is None else documents.rows[row].tolist()
            sentence_words, piece_words = self.tokenizer.source_units(sentence, ids, units)
            sentence_shares = np.zeros(len(sentence_words))  # [words]
            if row is not None and row_weights is not None:
                # Words of one piece share its attention equally.
                for its_words, weight in zip(piece_words, row_weights[row], strict=True):
                    sentence_shares[its_words.start : its_words.stop] += weight / len(its_words)
            words += sentence_words
            shares.append(sentence_shares)
        return words, np.concatenate(shares)  # [words]


def _rows_of(documents: Documents, number: int) -> range:
    """Rows of a text."""
    return range(documents.offsets[number], documents.offsets[number + 1])
