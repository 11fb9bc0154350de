"""Encoded text, flat: all ids in one array plus offsets, so that a million sentences are three objects, not a million."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nmt.data import Pairs
from nmt.data.links import parse_links
from nmt.foundation.progress import Progress
from nmt.tokenizer import Tokenizer

CHUNK = 4096

Encoder = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True)
class Ragged:
    """Sequences of ids: sequence i is ids[offsets[i]:offsets[i+1]]."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int | np.integer) -> np.ndarray:
        return self.ids[self.offsets[i] : self.offsets[i + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


class RaggedChain:
    """Several as one, a view."""

    def __init__(self, parts: Sequence[Ragged | RaggedChain]) -> None:
        self._parts, self._ends = parts, np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int | np.integer) -> np.ndarray:
        which = int(np.searchsorted(self._ends, i, "right"))
        return self._parts[which][int(i) - (int(self._ends[which - 1]) if which else 0)]

    @property
    def lengths(self) -> np.ndarray:
        return np.concatenate([part.lengths for part in self._parts])


@dataclass(frozen=True)
class Corpus:
    """Encoded sentence pairs, without BOS and EOS. `links`: for each pair, s₁ t₁ s₂ t₂ …, positions that are aligned;
    `pictures`: names."""

    source: Ragged | RaggedChain
    target: Ragged | RaggedChain
    links: Ragged | None = None
    pictures: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(self.source)


def joined(parts: Sequence[Corpus]) -> Corpus:
    """Several corpora as one, a view."""
    if len(parts) == 1:
        return parts[0]
    source, target = (
        RaggedChain([part.source for part in parts]),
        RaggedChain([part.target for part in parts]),
    )
    return Corpus(source, target)


def encode_lines(lines: Sequence[str], encoder: Encoder, vocabulary: int) -> Ragged:
    """Encodes chunk by chunk into flat arrays of the smallest integer type that holds the vocabulary."""
    dtype = id_type(vocabulary)
    ids, lengths = [np.empty(0, dtype)], [np.zeros(1, np.int64)]
    for part, part_lengths in _chunks(lines, encoder, dtype):
        ids.append(part)
        lengths.append(part_lengths)
    return Ragged(np.concatenate(ids), np.cumsum(np.concatenate(lengths)))


def flat(rows: Iterable[Sequence[int]]) -> Ragged:
    """Sequences as one array."""
    listed = list(rows)
    lengths = np.fromiter(map(len, listed), np.int64, len(listed))
    ids = np.fromiter((i for row in listed for i in row), np.uint32, int(lengths.sum()))
    return Ragged(ids, np.cumsum(np.concatenate([np.zeros(1, np.int64), lengths])))


def id_type(vocabulary: int) -> type[np.unsignedinteger]:
    """The smallest integers that hold the ids of a vocabulary."""
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def _chunks(
    lines: Sequence[str], encoder: Encoder, dtype: type
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with Progress("encoding", len(lines), "lines") as step:
        for start in range(0, len(lines), CHUNK):
            rows = encoder(list(lines[start : start + CHUNK]))
            lengths = np.fromiter(map(len, rows), np.int64, len(rows))
            yield (
                np.fromiter(itertools.chain.from_iterable(rows), dtype, int(lengths.sum())),
                lengths,
            )
            step(len(rows))


def encode(pairs: Pairs, tokenizer: Tokenizer, draw: int | None = None) -> Corpus:
    """Both sides of some pairs as ids. `draw`: the seed of a random segmentation."""
    source = encode_lines(
        pairs.source, partial(tokenizer.encode_source, seed=draw), tokenizer.source_ids
    )
    target = encode_lines(
        pairs.target, partial(tokenizer.encode_target, seed=draw), tokenizer.target_size
    )
    links = None if pairs.links is None else _linked(pairs, source, target, tokenizer)
    pictures = (
        [tokenizer.columns.picture_in(line) for line in pairs.source]
        if tokenizer.columns.picture
        else None
    )
    return Corpus(source, target, links, pictures)


def _linked(pairs: Pairs, source: Ragged, target: Ragged, tokenizer: Tokenizer) -> Ragged:
    """Links between pieces from links between words: all pieces of linked words are linked."""
    assert pairs.links is not None
    rows = []
    for i, line in enumerate(pairs.links):
        links = sorted(frozenset[tuple[int, int]]().union(*parse_links(line)))
        sides = (
            tokenizer.source_words(pairs.source[i], source[i].tolist(), str.split),
            tokenizer.target_words(pairs.target[i], target[i].tolist(), str.split),
        )
        of_source, of_target = (_pieces_of(places) for places in sides)
        rows.append(
            [
                at
                for s, t in links
                for p in of_source.get(s, ())
                for q in of_target.get(t, ())
                for at in (p, q)
            ]
        )
    return flat(rows)


def _pieces_of(places: Sequence[range]) -> dict[int, list[int]]:
    """The pieces of each word, from the words of each piece."""
    found: dict[int, list[int]] = {}
    for piece, words in enumerate(places):
        for word in words:
            found.setdefault(word, []).append(piece)
    return found
