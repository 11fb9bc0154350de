"""From parallel text to batches of ids: filtered, encoded, and cut into new batches for every epoch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from nmt.corpus import ragged
from nmt.corpus.batching import Batching, ReadPictures, collate, padding_share
from nmt.corpus.filters import Filters
from nmt.corpus.ragged import Corpus, Ragged, encode_cached, encode_lines, flat
from nmt.data import Pairs, Splits, Text
from nmt.data.links import parse_links
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Batch
from nmt.foundation.ranks import ALONE, Ranks
from nmt.tokenizer import Tokenizer, Untrained
from nmt.tokenizer.columns import Columns

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """Data ready to train on: the text, its tokenizer, the encoded training part and validation parts (those `beside` the
    first by their names), and which of the training pairs are `kept`."""

    splits: Splits
    tokenizer: Tokenizer
    train: Corpus
    validation: Corpus
    kept: np.ndarray
    beside: Mapping[str, Corpus] = field(default_factory=dict)


def train_once(tokenizer: Untrained, source: Text, target: Text, ranks: Ranks) -> Tokenizer:
    """The tokenizer that the first rank trains, for all."""
    found = tokenizer.train(source, target) if ranks.first else None
    models = ranks.of_first(None if found is None else found.models)
    if found is None and models is not None:
        found = Tokenizer(*models, lowercase=tokenizer.lowercase, sampling=tokenizer.sampling)
    assert found is not None
    return found


def prepare(splits: Splits, filters: Filters, tokenizer: Tokenizer | Untrained, ranks: Ranks = ALONE) -> Prepared:
    """Filters and encodes the data, with a trained tokenizer (when resuming) or one that is first trained on the data.

    Raises UserError if the data cannot be used.
    """
    train = filters.text(splits.train)
    names = (*splits.languages[0].split("+"), *splits.factors)
    if not isinstance(tokenizer, Tokenizer):
        columns = Columns.of(train.source, splits.sources, len(splits.factors), names, splits.pictures)
        source = texts(train.source, columns) if columns.sources else train.target  # pictures have no words
        tokenizer = train_once(tokenizer, source, train.target, ranks).reading(columns)
    held = tokenizer.columns
    if (held.sources, len(held.factors), held.picture) != (splits.sources, len(splits.factors), splits.pictures):
        given = Columns(splits.sources, ((),) * len(splits.factors), names, splits.pictures)
        raise UserError(
            f"data: its source lines hold {given.described}, but the model that this begins with reads {held.described}"
        )
    if not held.plain and not held.picture and held.names != names:
        log.warning("data: %s stand for what the model calls %s", ", ".join(names), ", ".join(held.names))
    encoded = encode_pairs(train, tokenizer)
    kept = filters.tokens(encoded, train.name)
    validation = encode_pairs(splits.validation, tokenizer)
    beside = {name: encode_pairs(pairs, tokenizer) for name, pairs in splits.beside.items()}
    return Prepared(replace(splits, train=train), tokenizer, encoded, validation, kept, beside)


def texts(source: Text, columns: Columns) -> Text:
    """What is text in the lines of a source, all its columns one after another."""
    if columns.plain:
        return source
    return [text for line in source for text in columns.split(line)[: columns.sources]]


def encode_pairs(pairs: Pairs, tokenizer: Tokenizer, draw: int | None = None) -> Corpus:
    """Both sides of some pairs as ids, on disk and memory-mapped if they are many. `draw`: the seed of a random
    segmentation, which is kept in memory."""
    columns = b"" if tokenizer.columns.plain else repr(tokenizer.columns).encode()
    sides = [
        (
            pairs.source,
            partial(tokenizer.encode_source, seed=draw),
            tokenizer.source_ids,
            tokenizer.models[0] + columns,
        ),
        (pairs.target, partial(tokenizer.encode_target, seed=draw), tokenizer.target_size, tokenizer.models[1]),
    ]
    if draw is not None or len(pairs) <= ragged.CACHE_ABOVE:
        source, target = (encode_lines(lines, encoder, size) for lines, encoder, size, _ in sides)
    else:
        folder = ragged.cache_folder()
        source, target = (encode_cached(*side, folder=folder) for side in sides)
    links = None if pairs.links is None else _linked(pairs, source, target, tokenizer)
    pictures = [tokenizer.columns.picture_in(line) for line in pairs.source] if tokenizer.columns.picture else None
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
        rows.append([at for s, t in links for p in of_source.get(s, ()) for q in of_target.get(t, ()) for at in (p, q)])
    return flat(rows)


def _pieces_of(places: Sequence[range]) -> dict[int, list[int]]:
    """The pieces of each word, from the words of each piece."""
    found: dict[int, list[int]] = {}
    for piece, words in enumerate(places):
        for word in words:
            found.setdefault(word, []).append(piece)
    return found


class EpochBatches:
    """The batches of one epoch, made on demand: a pure function of (data, seed, epoch). `read`: see `collate`."""

    def __init__(
        self, data: Prepared, batching: Batching, seed: int, epoch: int, read: ReadPictures | None = None
    ) -> None:
        self.corpus, self.reader = data.train, read
        if data.tokenizer.sampling:
            self.corpus = encode_pairs(data.splits.train, data.tokenizer, draw=hash((seed, epoch)) % 2**31)
        lengths = self.corpus.source.lengths[data.kept], self.corpus.target.lengths[data.kept]
        self.indices = [data.kept[batch] for batch in batching.indices(*lengths, seed=seed, epoch=epoch)]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int, /) -> Batch:
        return collate(self.corpus, self.indices[i], self.reader)

    def read(self, indices: Sequence[int]) -> Iterator[Batch]:
        return (self[i] for i in indices)

    @property
    def padding(self) -> float:
        return padding_share(self.indices, self.corpus.source.lengths, self.corpus.target.lengths)
