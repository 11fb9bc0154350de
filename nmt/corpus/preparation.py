"""From a configured data set to batches of ids: read, filtered, encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.configuration import build
from nmt.corpus import ragged as corpora
from nmt.corpus.batching import Batching, collate, padding_share
from nmt.corpus.ragged import Corpus, Filters
from nmt.data import Pairs, Splits
from nmt.foundation.interfaces import Batch
from nmt.tokenizer import Tokenizer

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Prepared:
    """Data ready to train on: the text, its tokenizer, the encoded training and validation parts."""

    splits: Splits
    tokenizer: Tokenizer
    train: Corpus
    validation: Corpus
    kept: np.ndarray


def prepare(config: Config, tokenizer: Tokenizer | None = None) -> Prepared:
    """Reads, filters and encodes the data; trains the tokenizer unless one is given (when resuming).

    Raises UserError if the data cannot be used.
    """
    filters: Filters = build.make(config, "filters")
    splits: Splits = build.make(config, "data").load()
    train = filters.text(splits.train)
    splits = Splits(train=train, validation=splits.validation, test=splits.test, languages=splits.languages)
    if tokenizer is None:
        tokenizer = build.make(config, "tokenizer").train(train.source, train.target)
    encoded = encode(train, tokenizer)
    kept = filters.tokens(encoded, train.name)
    return Prepared(splits, tokenizer, encoded, encode(splits.validation, tokenizer), kept)


def encode(pairs: Pairs, tokenizer: Tokenizer) -> Corpus:
    """Both sides of some pairs as ids, on disk and memory-mapped if they are many."""
    sides = [
        (pairs.source, tokenizer.encode_source, tokenizer.source_size, tokenizer.models[0]),
        (pairs.target, tokenizer.encode_target, tokenizer.target_size, tokenizer.models[1]),
    ]
    if len(pairs) <= corpora.CACHE_ABOVE:
        return Corpus(*(corpora.encode(lines, encoder, size) for lines, encoder, size, _ in sides))
    folder = corpora.cache_folder()
    return Corpus(*(corpora.encode_cached(*side, folder=folder) for side in sides))


class EpochBatches:
    """The batches of one epoch, made when asked for: a pure function of (data, seed, epoch)."""

    def __init__(self, data: Prepared, batching: Batching, seed: int, epoch: int) -> None:
        self.corpus = data.train
        if data.tokenizer.sampling:
            draw = hash((seed, epoch)) % 2**31
            train, tokenizer = data.splits.train, data.tokenizer
            source = corpora.encode(
                train.source, lambda lines: tokenizer.encode_source(lines, draw), tokenizer.source_size
            )
            target = corpora.encode(
                train.target, lambda lines: tokenizer.encode_target(lines, draw), tokenizer.target_size
            )
            self.corpus = Corpus(source, target)
        lengths = self.corpus.source.lengths[data.kept], self.corpus.target.lengths[data.kept]
        self.indices = [data.kept[batch] for batch in batching.indices(*lengths, seed=seed, epoch=epoch)]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int) -> Batch:
        return collate(self.corpus, self.indices[i])

    @property
    def padding(self) -> float:
        return padding_share(self.indices, self.corpus.source.lengths, self.corpus.target.lengths)
