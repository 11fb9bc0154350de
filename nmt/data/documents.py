"""Encoding and batching of texts for classification, as whole texts or split into sentences."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from nmt.data.batching import pad
from nmt.data.ragged import Ragged, encode_lines, offsets_of
from nmt.foundation.interfaces import EOS, TextBatch
from nmt.tokenizer import Tokenizer

LONGEST_SENTENCE = 500
"""Maximum number of characters per sentence in requests to the server and on exported HTML pages;
longer sentences are split."""
SENTENCE_END = re.compile(
    r"(?<=[.!?…؟۔।॥።፧፨՞։။།])[\"'”’)\]]*\s+|(?<=[。！？])(?![。！？」』）”’\"')\]])"
)
"""Pattern of the end of a sentence: a mark before a space, including the marks of Arabic, Urdu,
Hindi, Amharic, Armenian, Burmese and Tibetan, or a Chinese or Japanese mark."""
ABBREVIATION = re.compile(
    r"(\w|(\w\.)+\w|dr|mr|mrs|ms|prof|st|jr|sr|vs|etc|e\.g|i\.e|no|nr|vol|fig|approx|dept|gen|col|"
    r"lt|sgt|rev|hon|inc|ltd|co|hr|fr|bzw|ca|usw|ing|mag|mme|mlle|m|sra|srta|dott|avv|ing)\.",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Documents:
    """Encoded texts; a row is a sentence, or a whole text if texts are not split.

    rows: token ids; no row is empty
    offsets: row index of the beginning of each text, and the total number of rows
    cut: number of texts that were truncated
    """

    rows: Ragged
    offsets: np.ndarray
    cut: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text. A text that is split into sentences has one row per
        sentence, and the tokens of all its rows are counted."""
        return np.diff(self.rows.offsets[self.offsets])


def sentences(line: str) -> list[str]:
    """Splits a text into sentences.

    A sentence ends with . ! ? … or a similar mark of another script before a space, or with 。！？
    anywhere. A full stop after an initial or common abbreviation, or before a lowercase letter,
    does not end a sentence.
    """
    ends = [0]
    for match in SENTENCE_END.finditer(line):
        *_, word = ["", *line[ends[-1] : match.start()].rsplit(maxsplit=1)]
        is_abbreviation = ABBREVIATION.fullmatch(word.lstrip("([\"'“„«"))
        following = line[match.end() : match.end() + 1]
        # Georgian sentences begin with lowercase letters, which have no titlecase form.
        is_lowercase = following.islower() and following != following.title()
        if not word.endswith(".") or not (is_lowercase or is_abbreviation):
            ends.append(match.end())
    texts = [line[begin:end].strip() for begin, end in itertools.pairwise([*ends, len(line)])]
    return [text for text in texts if text]


def encode_documents(
    lines: Sequence[str],
    tokenizer: Tokenizer,
    splits: bool,
    max_tokens: int,
    seed: int | None = None,
) -> Documents:
    """Encodes texts as token ids; a text without tokens becomes a single EOS.

    lines: texts
    tokenizer: tokenizer whose source side encodes the texts
    splits: whether texts are split into sentences
    max_tokens: maximum number of tokens per text; further tokens are dropped
    seed: seed of the random segmentation; None for the deterministic segmentation
    """
    texts = [sentences(line) if splits else [line] for line in lines]
    encoded = encode_lines(
        [*itertools.chain.from_iterable(texts)],
        partial(tokenizer.encode_source, seed=seed),
        tokenizer.source_size,
    )
    encoded_rows = (encoded[i] for i in range(len(encoded)))
    rows: list[np.ndarray] = []
    offsets = [0]  # index of each text's first row
    cut = 0
    for text in texts:
        room = max_tokens  # number of tokens that may still be added to the text
        for ids in itertools.islice(encoded_rows, len(text)):
            if len(ids) and room > 0:
                rows.append(ids[:room])
            room -= len(ids)
        cut += room < 0
        if len(rows) == offsets[-1]:  # every text needs at least one row
            rows.append(np.array([EOS], encoded.ids.dtype))
        offsets.append(len(rows))
    ids = np.concatenate([encoded.ids[:0], *rows])  # the empty array supports zero rows
    return Documents(Ragged(ids, offsets_of([*map(len, rows)])), np.array(offsets), cut)


def collate_texts(
    documents: Documents, indices: Sequence[int] | np.ndarray, labels: np.ndarray | None
) -> TextBatch:
    """Builds a padded batch of texts. EOS is not appended, so attention covers only the tokens of
    the text.

    documents: encoded texts
    indices: indices of the texts in the batch
    labels: labels of all texts as a multi-hot Boolean matrix [texts, labels]; None if unknown
    """
    rows = [np.arange(documents.offsets[i], documents.offsets[i + 1]) for i in indices]
    # tokens [N, S], lengths [N]
    tokens, lengths = pad(documents.rows, np.concatenate(rows), end=False)
    return TextBatch(
        tokens=tokens,
        lengths=lengths,
        counts=torch.tensor([*map(len, rows)]),
        labels=None if labels is None else torch.from_numpy(labels[np.asarray(indices)]),
        num_tokens=len(rows),
    )
