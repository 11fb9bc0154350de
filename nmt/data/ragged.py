"""Encoded sentences in flat arrays: two NumPy arrays per corpus instead of millions of objects."""

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
"""Number of lines encoded at a time."""
Rows = Sequence[int] | range | np.ndarray
"""Type of indices that select sequences: a list, a range or an array."""


def offsets_of(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the start position of each sequence in a flat array, followed by the total length."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True)
class Ragged:
    """Ragged array: sequences of ids in a flat array.

    Sequence i is ids[offsets[i] : offsets[i + 1]].

    ids: ids of all sequences
    offsets: start of each sequence, and the total length
    """

    ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], dtype: type = np.uint32) -> "Ragged":
        """Creates a ragged array from sequences in memory."""
        offsets = offsets_of([*map(len, sequences)])
        return cls(
            ids=np.fromiter(itertools.chain.from_iterable(sequences), dtype, int(offsets[-1])),
            offsets=offsets,
        )

    @classmethod
    def concatenated(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """Concatenates ragged arrays into a new ragged array."""
        return cls(
            ids=np.concatenate([part.ids for part in parts]),
            offsets=offsets_of(np.concatenate([part.lengths for part in parts])),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int | np.integer) -> np.ndarray:
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """Number of ids in each sequence."""
        return np.diff(self.offsets)

    def select(self, rows: Rows) -> "Ragged":
        """Returns copies of the sequences with the given indices."""
        rows = np.asarray(rows)
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = offsets_of(lengths)
        # Current position of each selected id: a single gather replaces a loop over sequences.
        positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Ragged(self.ids[positions], offsets)


class RaggedChain:
    """View of several ragged arrays as a single ragged array, without copying."""

    def __init__(self, parts: Sequence[Ragged]) -> None:
        self._parts = parts
        self._starts = offsets_of([*map(len, parts)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def lengths(self) -> np.ndarray:
        """Number of ids in each sequence."""
        return np.concatenate([part.lengths for part in self._parts])

    def select(self, rows: Rows) -> Ragged:
        """Returns copies of the sequences with the given indices, with one gather operation per
        array.
        """
        rows = np.asarray(rows)
        part_numbers = np.searchsorted(self._starts, rows, "right") - 1  # [n]
        by_part = Ragged.concatenated(
            [
                part.select(rows[part_numbers == number] - self._starts[number])
                for number, part in enumerate(self._parts)
            ]
        )
        # The double argsort gives each row's position in the order sorted by part.
        return by_part.select(np.argsort(np.argsort(part_numbers, kind="stable")))


@dataclass(frozen=True)
class Corpus:
    """Encoded sentence pairs, without BOS and EOS.

    source: source token ids
    target: target token ids
    links: aligned token positions s₁ t₁ s₂ t₂ … of each pair; None without alignments
    pictures: image name of each pair; None for text only
    """

    source: Ragged | RaggedChain
    target: Ragged | RaggedChain
    links: Ragged | None = None
    pictures: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.source)


def id_type(vocabulary: int) -> type[np.unsignedinteger]:
    """Returns uint16 if all ids of a vocabulary of this size fit, otherwise uint32."""
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def encode_lines(
    lines: Sequence[str], encoder: Callable[[list[str]], Sequence[Sequence[int]]], vocabulary: int
) -> Ragged:
    """Encodes lines as token ids, chunk by chunk.

    lines: lines to encode
    encoder: function that encodes a list of lines as token ids
    vocabulary: number of ids, which determines the integer type
    """
    dtype = id_type(vocabulary)
    chunks = [Ragged.of([], dtype)]  # `concatenated` needs at least one array
    with Progress("encoding", len(lines), "lines") as step:
        for start in range(0, len(lines), CHUNK):
            chunks.append(Ragged.of(encoder(list(lines[start : start + CHUNK])), dtype))
            step(len(chunks[-1]))
    return Ragged.concatenated(chunks)


def encode(pairs: Pairs, tokenizer: Tokenizer, seed: int | None = None) -> Corpus:
    """Encodes both sides of sentence pairs.

    pairs: sentence pairs to encode
    tokenizer: trained tokenizer
    seed: seed of a random segmentation; None for the deterministic segmentation
    """
    source = encode_lines(
        pairs.source, partial(tokenizer.encode_source, seed=seed), tokenizer.source_ids
    )
    target = encode_lines(
        pairs.target, partial(tokenizer.encode_target, seed=seed), tokenizer.target_size
    )
    links = None if pairs.links is None else _piece_links(pairs, source, target, tokenizer)
    columns = tokenizer.columns
    # The pixels are read when a batch is built.
    pictures = [columns.picture_in(line) for line in pairs.source] if columns.picture else None
    return Corpus(source, target, links, pictures)


def _piece_links(pairs: Pairs, source: Ragged, target: Ragged, tokenizer: Tokenizer) -> Ragged:
    """Converts word links into token links: each token of a source word is linked to each token of
    every linked target word.
    """
    rows = []
    for i, line in enumerate(pairs.links or ()):
        sure, possible = parse_links(line)
        source_words = tokenizer.source_words(pairs.source[i], source[i].tolist(), str.split)
        target_words = tokenizer.target_words(
            pairs.target[i], target[i].tolist(), str.split, encoded=True
        )
        row: list[int] = []
        for s, t in sorted(sure | possible):
            source_pieces = [piece for piece, words in enumerate(source_words) if s in words]
            target_pieces = [piece for piece, words in enumerate(target_words) if t in words]
            row += itertools.chain(*itertools.product(source_pieces, target_pieces))
        rows.append(row)
    return Ragged.of(rows)
