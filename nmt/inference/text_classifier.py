"""Classification of texts with a trained network, with the importance of each word."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
import torch

from nmt.data.documents import Documents, collate_texts, encode_documents, sentences
from nmt.data.text_encoding import check_lines
from nmt.drawing.word_importance import Classified
from nmt.foundation.interfaces import to_device
from nmt.foundation.progress import Progress
from nmt.inference.parallel import length_batches
from nmt.inference.word_alignment import shares_of_words
from nmt.model.seq2label import Seq2Label
from nmt.tokenizer import Tokenizer
from nmt.tokenizer.words import Units, check_units

log = logging.getLogger(__name__)
BATCH_TOKENS = 8000
"""Maximum number of token positions per batch, padding included."""


@dataclass(eq=False)
class TextClassifier:
    """Text classifier: a network in evaluation mode with its tokenizer.

    The weights must not change while the object is in use.

    model: classification network
    tokenizer: tokenizer of the network
    max_tokens: maximum number of tokens per text; longer texts are truncated, with one
        warning
    """

    model: Seq2Label
    tokenizer: Tokenizer
    max_tokens: int
    _has_warned: bool = field(default=False, init=False)

    def __repr__(self) -> str:
        labels = ", ".join(self.model.labels.names[:8])
        return f"TextClassifier({labels}, {type(self.model.pooling).__name__.lower()})"

    @property
    def attends(self) -> bool:
        """Whether the classifier has attention weights, which serve as word importances."""
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
        """Returns the labels, probabilities and word importances of each text.

        lines: list of texts, or a single string for a single result; an empty text is read as a
            single EOS
        units: units of the importances: words or subwords
        """
        if isinstance(lines, str):
            return self.classify([lines], units)[0]
        lines = check_lines(lines)
        check_units(units)
        documents = self._encode(lines)
        probabilities, row_weights = self._read(documents)
        is_chosen = self.model.labels.chosen(probabilities)  # [texts, labels]
        names = self.model.labels.names
        answers = []
        for i, line in enumerate(lines):
            words, importances = self._importances(line, documents, i, row_weights, units)
            answer = Classified(
                labels=tuple(name for k, name in enumerate(names) if is_chosen[i, k]),
                probabilities=dict(zip(names, probabilities[i].tolist(), strict=True)),
                words=words,
                importances=importances if importances.any() else None,
                line=line,
            )
            answers.append(answer)
        return answers

    def probabilities(self, lines: str | Sequence[str]) -> np.ndarray:
        """Returns the label probabilities as an array [texts, labels], or [labels] for a single
        string."""
        if isinstance(lines, str):
            return self.probabilities([lines])[0]
        return self._read(self._encode(check_lines(lines)))[0]

    def _encode(self, lines: Sequence[str]) -> Documents:
        documents = encode_documents(
            lines, self.tokenizer, self.model.pooling.splits, self.max_tokens
        )
        if documents.cut and not self._has_warned:
            log.warning(
                "the classifier reads only the first %s tokens of a text; some texts are longer",
                f"{self.max_tokens:,}",
            )
            self._has_warned = True
        return documents

    @torch.inference_mode()
    def _read(self, documents: Documents) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns the label probabilities [texts, labels], and the attention weights of the tokens
        in each row of the encoder batch, averaged over the hops; zeros without attention.

        A row is a text or, with hierarchical pooling, a sentence.
        """
        if self.model.training:
            raise ValueError("the network is in training mode; call model.eval() first")
        device = next(self.model.parameters()).device
        probabilities = np.zeros((len(documents), len(self.model.labels.names)))  # [texts, labels]
        row_weights = [np.zeros(length) for length in documents.rows.lengths]  # [pieces] each
        lengths = documents.lengths.tolist()
        with Progress("labelling", len(documents), "texts") as step:
            for batch in length_batches(range(len(documents)), lengths, BATCH_TOKENS):
                texts = to_device(collate_texts(documents, batch, None), device)
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
        return probabilities, row_weights

    def _importances(
        self,
        line: str,
        documents: Documents,
        number: int,
        row_weights: list[np.ndarray],
        units: Units,
    ) -> tuple[list[str], np.ndarray]:
        """Returns the units of one text and the attention weight of each unit.

        line: text to split into units
        documents: tokenised texts
        number: index of the text in `documents`
        row_weights: attention weights of the tokens in each row of the encoder batch; a row is a
            text or, with hierarchical pooling, a sentence
        units: units of the result: words or subwords
        """
        words: list[str] = []
        shares = [np.zeros(0)]
        rows = iter(_rows_of(documents, number))
        for sentence in sentences(line) if self.model.pooling.splits else [line]:
            # Empty sentences and sentences after `max_tokens` have no row.
            row = next(rows, None) if self.tokenizer.encode_source([sentence])[0] else None
            ids = [] if row is None else documents.rows[row].tolist()
            weights = np.zeros(0) if row is None else row_weights[row]  # [pieces]
            sentence_words, piece_words = self.tokenizer.source_units(sentence, ids, units)
            words += sentence_words
            shares.append(weights @ shares_of_words(piece_words, len(sentence_words))[:-1, :-1])
        return words, np.concatenate(shares)  # [words]


def _rows_of(documents: Documents, number: int) -> range:
    """Returns the row numbers of one text in the encoder batch."""
    return range(documents.offsets[number], documents.offsets[number + 1])
