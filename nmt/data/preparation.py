"""From parallel text to batches of ids: filtered, encoded, and cut into new batches for every epoch."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from nmt.data import Pairs, Splits, Stage, Text, tag_of
from nmt.data.batching import Batching, ReadPictures, ahead, collate, padding_share
from nmt.data.filters import Filters
from nmt.data.journal import alone
from nmt.data.mixing import Mixing
from nmt.data.modifiers import Modifier, applied
from nmt.data.ragged import Corpus, encode, joined
from nmt.data.sources.mix import chained
from nmt.data.store import chunk_of, encoded
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Batch
from nmt.foundation.ranks import ALONE, Ranks
from nmt.tokenizer import SentencePiece, Tokenizer, Untrained
from nmt.tokenizer.columns import Columns

log = logging.getLogger(__name__)
MEASURED = 1000
"""Batches of which the padding is told."""


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


def train_once(
    tokenizer: Untrained, source: Text, target: Text, ranks: Ranks, home: Path | None = None
) -> Tokenizer:
    """The tokenizer that the first rank trains, for all; that of stored text is kept in its `home`."""
    if home is not None and isinstance(tokenizer, SentencePiece):
        tokenizer.shared = tokenizer.shared or str(home / "tokenizers")
    found = None
    if ranks.first:
        with (
            contextlib.nullcontext()
            if home is None
            else alone(home / "tokenizers", "tokenizer of this text")
        ):
            found = tokenizer.train(source, target)
    models = ranks.of_first(None if found is None else found.models)
    if found is None and models is not None:
        found = Tokenizer(*models, lowercase=tokenizer.lowercase, sampling=tokenizer.sampling)
    assert found is not None
    return found


def prepare(
    splits: Splits, filters: Filters, tokenizer: Tokenizer | Untrained, ranks: Ranks = ALONE
) -> Prepared:
    """Filters and encodes the data, with a trained tokenizer (when resuming) or one that is first trained on the data.

    Raises UserError if the data cannot be used.
    """
    if splits.mixture is not None:
        filtered = {
            name: _filtered(pairs, filters) for name, pairs in splits.mixture.corpora.items()
        }
        splits = replace(splits, mixture=replace(splits.mixture, corpora=filtered))
        train = chained([*filtered.values()], splits.train.name)
    else:
        train = _filtered(splits.train, filters)
    names = (*splits.languages[0].split("+"), *splits.factors)
    if not isinstance(tokenizer, Tokenizer):
        columns = Columns.of(
            train.source, splits.sources, len(splits.factors), names, splits.pictures
        )
        source = (
            texts(train.source, columns) if columns.sources else train.target
        )  # pictures have no words
        tokenizer = train_once(tokenizer, source, train.target, ranks, train.store).reading(columns)
    held = tokenizer.columns
    if (held.sources, len(held.factors), held.picture) != (
        splits.sources,
        len(splits.factors),
        splits.pictures,
    ):
        given = Columns(splits.sources, ((),) * len(splits.factors), names, splits.pictures)
        raise UserError(
            f"data: its source lines hold {given.described}, but the model that this begins with reads {held.described}"
        )
    if not held.plain and not held.picture and held.names != names:
        log.warning(
            "data: %s stand for what the model calls %s", ", ".join(names), ", ".join(held.names)
        )
    parts = [train] if splits.mixture is None else [*splits.mixture.corpora.values()]
    ids = joined(
        [
            encode(part, tokenizer) if part.store is None else encoded(part, tokenizer)
            for part in parts
        ]
    )
    kept = filters.tokens(ids, train.name)
    validation = encode(splits.validation, tokenizer)
    beside = {name: encode(pairs, tokenizer) for name, pairs in splits.more_validation.items()}
    return Prepared(replace(splits, train=train), tokenizer, ids, validation, kept, beside)


def _filtered(pairs: Pairs, filters: Filters) -> Pairs:
    return pairs if pairs.store is not None else filters.text(pairs)


def texts(source: Text, columns: Columns) -> Text:
    """What is text in the lines of a source, all its columns one after another."""
    if columns.plain:
        return source
    return [text for line in source for text in columns.split(line)[: columns.sources]]


class EpochBatches:
    """The batches of one epoch, made on demand: a pure function of (data, seed, epoch). With a random segmentation, batches
    are planned by the lengths of the usual one. `reader`: see `collate`; `ahead`: processes that make batches before they
    are needed."""

    def __init__(
        self,
        data: Prepared,
        batching: Batching,
        seed: int,
        epoch: int,
        reader: ReadPictures | None = None,
        ahead: int = 0,
        mixing: Mixing | None = None,
    ) -> None:
        self.data, self.reader, self.ahead = data, reader, ahead
        self.draw = hash((seed, epoch)) % 2**31 if data.tokenizer.sampling else None
        self.modifiers: list[Sequence[Modifier]] = []
        self.indices: list[np.ndarray] = []
        segments: list[tuple[Stage | None, np.ndarray]] = [(None, data.kept)]
        if mixing is not None:
            segments = [*mixing.epoch(epoch)]
        sides, self.key = (data.train.source.lengths, data.train.target.lengths), f"{seed} {epoch}"
        for stage, rows in segments:
            source, target = (side[rows] for side in sides)
            self.indices += [rows[batch] for batch in batching.indices(source, target, seed, epoch)]
            self.modifiers += [() if stage is None else stage.modifiers] * (
                len(self.indices) - len(self.modifiers)
            )

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int, /) -> Batch:
        if self.draw is None and not self.modifiers[i]:
            return collate(self.data.train, self.indices[i], self.reader)
        pairs = chunk_of(self.data.splits.train, self.indices[i])
        if self.modifiers[i]:
            pairs = self._modified(pairs, i)
        drawn = encode(pairs, self.data.tokenizer, self.draw)
        return collate(drawn, range(len(drawn)), self.reader)

    def _modified(self, pairs: Pairs, i: int) -> Pairs:
        """What the modifiers of its stage make of a batch: a pure function of (seed, epoch, batch)."""
        draw, found = random.Random(f"{self.key} {i}"), list[tuple[str, str]]()
        mixture = self.data.splits.mixture
        assert mixture is not None, "only mixtures have modifiers"
        for source, target in zip(pairs.source, pairs.target, strict=True):
            tag = tag_of(source, mixture.tags)
            made = applied(self.modifiers[i], (source.removeprefix(tag), target), draw)
            found += [(tag + source, target) for source, target in made]
        sources, targets = zip(*found, strict=True)
        return Pairs(sources, targets, pairs.name)

    def read(self, indices: Sequence[int]) -> Iterator[Batch]:
        return ahead(self, indices, self.ahead)

    @property
    def padding(self) -> float:
        """Share of positions that are padding, of the first batches."""
        return padding_share(
            self.indices[:MEASURED], self.data.train.source.lengths, self.data.train.target.lengths
        )
