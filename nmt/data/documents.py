"""Texts to classify, encoded as ids, whole or cut into sentences; and batches of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nmt.data.batching import pad
from nmt.data.ragged import Ragged, encode_lines
from nmt.foundation.interfaces import EOS, TextBatch
from nmt.tokenizer import Tokenizer

LONGEST_SENTENCE = 500
"""Characters that a server, or the page of a model, translates at once; longer sentences are cut between words."""
SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])")

ABBREVIATION = re.compile(
    r"(\w|(\w\.)+\w|dr|mr|mrs|ms|prof|st|jr|sr|vs|etc|e\.g|i\.e|no|nr|vol|fig|approx|dept|gen|col|lt|sgt|rev|hon|inc|ltd|co|"
    r"hr|fr|bzw|ca|usw|ing|mag|mme|mlle|m|sra|srta|dott|avv|ing)\.",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Documents:
    """Encoded texts, cut into rows (sentences, or one row per text): text i is rows offsets[i] to offsets[i+1]. A row is
    never empty. `cut`: how many texts were too long and have lost their end."""

    rows: Ragged
    offsets: np.ndarray
    cut: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text."""
        return np.diff(self.rows.offsets[self.offsets])


def sentences(line: str) -> list[str]:
    """A text's sentences: they end with . ! ? … before a space, or with 。！？ anywhere. A point after an initial or a usual
    abbreviation ends nothing, nor does one before a small letter."""
    parts, begin = [], 0
    for match in SENTENCE_END.finditer(line):
        before, after = (
            line[begin : match.start()].rsplit(maxsplit=1)[-1:],
            line[match.end() : match.end() + 1],
        )
        if (
            before
            and before[0].endswith(".")
            and (after.islower() or ABBREVIATION.fullmatch(before[0].lstrip("([\"'“„«")))
        ):
            continue
        parts.append(line[begin : match.end()].strip())
        begin = match.end()
    parts.append(line[begin:].strip())
    return [part for part in parts if part]


def encode_documents(
    lines: Sequence[str],
    tokenizer: Tokenizer,
    splits: bool,
    max_tokens: int,
    seed: int | None = None,
) -> Documents:
    """Texts as ids, in sentences or whole, cut to `max_tokens`; a text without tokens becomes a single EOS. `seed`: see
    `Tokenizer.encode_source`."""
    parts = [sentences(line) if splits else [line] for line in lines]
    flat = [part for each in parts for part in each]
    encoded = encode_lines(
        flat, lambda some: tokenizer.encode_source(some, seed), tokenizer.source_size
    )
    rows, offsets, row, cut = list[np.ndarray](), [0], 0, 0
    for each in parts:
        room = max_tokens
        for _ in each:
            ids = encoded[row]
            row += 1
            if len(ids) and room > 0:
                rows.append(ids[:room])
            room -= len(ids)
        cut += room < 0
        if len(rows) == offsets[-1]:
            rows.append(np.array([EOS], encoded.ids.dtype))
        offsets.append(len(rows))
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    ids = np.concatenate(rows) if rows else encoded.ids
    return Documents(Ragged(ids, np.concatenate([[0], np.cumsum(lengths)])), np.array(offsets), cut)


def collate_texts(
    documents: Documents, indices: Sequence[int] | np.ndarray, labels: np.ndarray | None
) -> TextBatch:
    """The chosen texts as one padded batch. No EOS is added, so that only words can be attended to."""
    places = [np.arange(documents.offsets[i], documents.offsets[i + 1]) for i in indices]
    tokens, lengths = pad(documents.rows, np.concatenate(places), end=False)
    counts = torch.tensor([len(each) for each in places])
    held = None if labels is None else torch.from_numpy(labels[np.asarray(indices)])
    return TextBatch(
        tokens=tokens, lengths=lengths, counts=counts, labels=held, num_tokens=len(places)
    )
