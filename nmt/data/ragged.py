"""Encoded text as flat arrays: a million sentences are two arrays, not a million objects."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nmt.data import Pairs
from nmt.data.links import parse_links
from nmt.foundation.progress import Progress
from nmt.tokenizer import Tokenizer

CHUNK = 4096
"""Lines that are encoded at once."""
Encoder = Callable[[list[str]], Sequence[Sequence[int]]]
"""Encodes lines as ids."""
Rows = Sequence[int] | range | np.ndarray
"""Numbers of sequences."""


def offsets_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Positions in one flat array: the beginning of each sequence, and the end of the last one."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True)
class Ragged:
    """Sequences of ids: sequence i is ids[offsets[i] : offsets[i + 1]]."""

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], dtype: type = np.uint32) -> Ragged:
        """Sequences in memory as one array."""
        offsets = offsets_of([*map(len, sequences)])
        numbers = itertools.chain.from_iterable(sequences)
        return cls(np.fromiter(numbers, dtype, int(offsets[-1])), offsets)

    @classmethod
    def concatenated(cls, parts: Sequence[Ragged]) -> Ragged:
        """The sequences of several parts, copied."""
        ids = np.concatenate([part.ids for part in parts])
        return cls(ids, offsets_of(np.concatenate([part.lengths for part in parts])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int | np.integer) -> np.ndarray:
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Length of each sequence."""
        return np.diff(self.offsets)

    def select(self, rows: Rows) -> Ragged:
        """Copies of some sequences."""
        rows = np.asarray(rows)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = offsets_of(lengths)
        # Where each id of the result is now: one gather instead of a loop over the sequences.
        positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Ragged(self.ids[positions], offsets)

    def padded(self, rows: Rows, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Some sequences as a matrix, by one gather.

        rows: numbers of the n sequences.
        columns: number of columns in addition to those of the longest sequence.

        Returns ids [n, L + columns], with any ids after the end of a sequence, and lengths [n].
        """
        rows = np.asarray(rows)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        width = int(lengths.max()) + columns
        if not len(self.ids):  # `take` refuses an empty array
            return np.zeros((len(rows), width), np.int64), lengths
        positions = starts[:, None] + np.arange(width)  # [n, L + columns]
        return self.ids.take(positions, mode="clip").astype(np.int64), lengths


class RaggedChain:
    """Several parts as one, without a copy."""

    def __init__(self, parts: Sequence[Ragged]) -> None:
        self._parts = parts
        self._starts = offsets_of([*map(len, parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def lengths(self) -> np.ndarray:
        """Length of each sequence."""
        return np.concatenate([part.lengths for part in self._parts])

    def padded(self, rows: Rows, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Some sequences as a matrix, by one gather from each part. See `Ragged.padded`."""
        rows = np.asarray(rows)
        part_numbers = np.searchsorted(self._starts, rows, "right") - 1  # [n]
        by_part = Ragged.concatenated(
            [
                part.select(rows[part_numbers == number] - self._starts[number])
                for number, part in enumerate(self._parts)
            ]
        )
        # The second argsort inverts the first: from the order of the parts to that of the rows.
        return by_part.padded(np.argsort(np.argsort(part_numbers, kind="stable")), columns)


@dataclass(frozen=True)
class Corpus:
    """Encoded sentence pairs, without BOS and EOS.

    source: ids of the source.
    target: ids of the target.
    links: for each pair, s₁ t₁ s₂ t₂ …, positions that are aligned.
    pictures: names of the pictures.
    """

    source: Ragged | RaggedChain
    target: Ragged | RaggedChain
    links: Ragged | None = None
    pictures: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.source)


def id_type(vocabulary: int) -> type[np.unsignedinteger]:
    """The smallest integers that hold the ids of a vocabulary."""
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def encode_lines(lines: Sequence[str], encoder: Encoder, vocabulary: int) -> Ragged:
    """Ids of lines, encoded chunk by chunk.

    lines: the lines.
    encoder: encodes lines.
    vocabulary: number of ids, which decides their type.
    """
    dtype = id_type(vocabulary)
    chunks = [Ragged.of([], dtype)]  # `concatenated` needs one, also for no lines
    with Progress("encoding", len(lines), "lines") as step:
        for start in range(0, len(lines), CHUNK):
            chunks.append(Ragged.of(encoder(list(lines[start : start + CHUNK])), dtype))
            step(len(chunks[-1]))
    return Ragged.concatenated(chunks)


def encode(pairs: Pairs, tokenizer: Tokenizer, seed: int | None = None) -> Corpus:
    """Ids of both sides of sentence pairs.

    pairs: text.
    tokenizer: trained tokenizer.
    seed: seed of a random segmentation; None: the deterministic one.
    """
    source = encode_lines(
        pairs.source, partial(tokenizer.encode_source, seed=seed), tokenizer.source_ids
    )
    target = encode_lines(
        pairs.target, partial(tokenizer.encode_target, seed=seed), tokenizer.target_size
    )
    links = None if pairs.links is None else _piece_links(pairs, source, target, tokenizer)
    pictures = None  # their pixels are read when a batch is made
    if tokenizer.columns.picture:
        pictures = [tokenizer.columns.picture_in(line) for line in pairs.source]
    return Corpus(source, target, links, pictures)


def _piece_links(pairs: Pairs, source: Ragged, target: Ragged, tokenizer: Tokenizer) -> Ragged:
    """Links between pieces from links between words: all pieces of linked words are linked."""
    rows = []
    for i, line in enumerate(pairs.links or ()):
        sure, possible = parse_links(line)
        source_words = tokenizer.source_words(pairs.source[i], source[i].tolist(), str.split)
        target_words = tokenizer.target_words(pairs.target[i], target[i].tolist(), str.split)
        source_pieces = _pieces_by_word(source_words)
        target_pieces = _pieces_by_word(target_words)
        row: list[int] = []
        for s, t in sorted(sure | possible):
            for link in itertools.product(source_pieces.get(s, ()), target_pieces.get(t, ())):
                row += link
        rows.append(row)
    return Ragged.of(rows)


def _pieces_by_word(words_of_pieces: Sequence[range]) -> dict[int, list[int]]:
    """The pieces of each word, from the words of each piece."""
    pieces: dict[int, list[int]] = {}
    for piece, words in enumerate(words_of_pieces):
        for word in words:
            pieces.setdefault(word, []).append(piece)
    return pieces
