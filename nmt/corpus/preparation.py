"""From parallel text to batches of ids: filtered, encoded, and cut into new batches for every epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from nmt.corpus import ragged
from nmt.corpus.batching import Batching, collate, padding_share
from nmt.corpus.filters import Filters
from nmt.corpus.ragged import Corpus, encode_cached, encode_lines
from nmt.data import Pairs, Splits
from nmt.foundation.interfaces import Batch
from nmt.tokenizer import Tokenizer, Untrained


@dataclass(frozen=True)
class Prepared:
    """Data ready to train on: the text, its tokenizer, the encoded training and validation parts, and which of the training
    pairs are `kept`."""

    splits: Splits
    tokenizer: Tokenizer
    train: Corpus
    validation: Corpus
    kept: np.ndarray


def prepare(splits: Splits, filters: Filters, tokenizer: Tokenizer | Untrained) -> Prepared:
    """Filters and encodes the data, with a trained tokenizer (when resuming) or one that is first trained on the data.

    Raises UserError if the data cannot be used.
    """
    train = filters.text(splits.train)
    trained = tokenizer if isinstance(tokenizer, Tokenizer) else tokenizer.train(train.source, train.target)
    encoded = encode_pairs(train, trained)
    kept = filters.tokens(encoded, train.name)
    return Prepared(replace(splits, train=train), trained, encoded, encode_pairs(splits.validation, trained), kept)


def encode_pairs(pairs: Pairs, tokenizer: Tokenizer) -> Corpus:
    """Both sides of some pairs as ids, on disk and memory-mapped if they are many."""
    sides = [
        (pairs.source, tokenizer.encode_source, tokenizer.source_size, tokenizer.models[0]),
        (pairs.target, tokenizer.encode_target, tokenizer.target_size, tokenizer.models[1]),
    ]
    if len(pairs) <= ragged.CACHE_ABOVE:
        return Corpus(*(encode_lines(lines, encoder, size) for lines, encoder, size, _ in sides))
    folder = ragged.cache_folder()
    return Corpus(*(encode_cached(*side, folder=folder) for side in sides))


class EpochBatches:
    """The batches of one epoch, made on demand: a pure function of (data, seed, epoch)."""

    def __init__(self, data: Prepared, batching: Batching, seed: int, epoch: int) -> None:
        self.corpus = data.train
        if data.tokenizer.sampling:
            draw = hash((seed, epoch)) % 2**31
            train, tokenizer = data.splits.train, data.tokenizer
            source = encode_lines(
                train.source, lambda lines: tokenizer.encode_source(lines, draw), tokenizer.source_size
            )
            target = encode_lines(
                train.target, lambda lines: tokenizer.encode_target(lines, draw), tokenizer.target_size
            )
            self.corpus = Corpus(source, target)
        lengths = self.corpus.source.lengths[data.kept], self.corpus.target.lengths[data.kept]
        self.indices = [data.kept[batch] for batch in batching.indices(*lengths, seed=seed, epoch=epoch)]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int, /) -> Batch:
        return collate(self.corpus, self.indices[i])

    @property
    def padding(self) -> float:
        return padding_share(self.indices, self.corpus.source.lengths, self.corpus.target.lengths)
