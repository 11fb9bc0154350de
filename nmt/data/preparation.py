"""Prepares training data: filters and encodes sentence pairs, and builds batches per epoch."""

import hashlib
import logging
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data import Pairs, Splits, Stage, Text, chained, tag_of
from nmt.data.batching import Batching, ReadPictures, collate, padding_share
from nmt.data.filters import Filters
from nmt.data.mixing import Mixing
from nmt.data.modifiers import Modifier, applied
from nmt.data.overlap import not_held_out
from nmt.data.ragged import Corpus, RaggedChain, encode
from nmt.data.store import encoded
from nmt.data.worker_processes import ordered_map
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Batch
from nmt.foundation.ranks import ALONE, Ranks
from nmt.storage.cache import build_once
from nmt.tokenizer import Tokenizer, Train, Untrained
from nmt.tokenizer.columns import TAB, Columns

log = logging.getLogger(__name__)
SHARED = "NMT_TOKENIZERS"
"""Environment variable with the folder in which runs share SentencePiece models."""
MEASURED = 1000
"""Number of batches from which the padding fraction is computed."""


@dataclass(frozen=True)
class PreparedData:
    """Filtered and encoded data of a training run.

    splits: sentence pairs, filtered by all filters that need no tokenizer
    tokenizer: trained tokenizer
    train: encoded training pairs
    validation: encoded validation pairs
    kept: indices of the training pairs that passed the length filters
    more_validation: encoded further validation sets, by name
    """

    splits: Splits
    tokenizer: Tokenizer
    train: Corpus
    validation: Corpus
    kept: np.ndarray
    more_validation: Mapping[str, Corpus] = field(default_factory=dict)


def train_once(
    tokenizer: Untrained, source: Text, target: Text, ranks: Ranks, store: Path | None = None
) -> Tokenizer:
    """Trains a tokenizer on rank 0 and sends it to all other ranks.

    tokenizer: settings of the tokenizer
    source, target: lines of text
    ranks: ranks of the distributed training
    store: folder of the filtered pairs; SentencePiece models are cached in its folder `tokenizers`,
        unless NMT_TOKENIZERS names another folder. None for pairs in memory
    """
    trained: Any = None
    if ranks.first:
        folder = os.environ.get(SHARED) or (store and store / "tokenizers")
        shared = partial(_shared_model, Path(folder)) if folder else None
        trained = tokenizer.train(source, target, shared)
    tokenizer_of_first: Tokenizer = ranks.of_first(trained)
    return tokenizer_of_first


def _shared_model(folder: Path, settings: object, lines: list[str], train: Train) -> bytes:
    """Returns the SentencePiece model for settings and lines; the first run with these settings and
    lines trains the model.

    folder: folder in which trained models are cached
    settings: settings of the model
    lines: training lines
    train: function that trains the model

    Raises UserError if the model file is damaged.
    """
    key = hashlib.sha256(repr(settings).encode())
    for line in lines:
        key.update(line.encode("utf-8", "surrogatepass") + b"\n")
    file = folder / f"{key.hexdigest()}.model" / "sentencepiece"
    if file.is_file():
        log.info("tokenizer: reusing the SentencePiece model of an earlier run on the same data")

    def build(unfinished: Path) -> None:
        (unfinished / file.name).write_bytes(train(lines))

    build_once(file.parent, "tokenizer", build)
    return file.read_bytes()


def prepare(
    splits: Splits, filters: Filters, tokenizer: Tokenizer | Untrained, ranks: Ranks = ALONE
) -> PreparedData:
    """Filters and encodes a data set, and trains its tokenizer if necessary.

    splits: sentence pairs
    filters: filters of the training pairs
    tokenizer: trained tokenizer when resuming, otherwise settings of a tokenizer to train
    ranks: ranks of the distributed training

    Raises UserError if the filters drop all pairs, or if a trained tokenizer expects other columns.
    """
    mixture = splits.mixture
    corpora = {"": splits.train} if mixture is None else mixture.corpora
    # Stored pairs have already passed the filters.
    corpora = {n: filters.text(c) if c.store is None else c for n, c in corpora.items()}
    parts = [*corpora.values()]
    splits = replace(
        splits,
        mixture=None if mixture is None else replace(mixture, corpora=corpora),
        train=parts[0] if mixture is None else chained(parts, splits.train.name),
    )
    rows = _training_rows(splits, filters)
    if not isinstance(tokenizer, Tokenizer):
        is_part = len(rows) < len(splits.train)
        text = replace(splits, train=splits.train.select(rows)) if is_part else splits
        tokenizer = _trained(tokenizer, text, ranks)
    _check_columns(tokenizer.columns, splits)
    corpora_of_ids: list[Any] = [
        encode(part, tokenizer) if part.store is None else encoded(part, tokenizer)
        for part in parts
    ]
    train = corpora_of_ids[0]
    if len(parts) > 1:
        train = Corpus(
            RaggedChain([corpus.source for corpus in corpora_of_ids]),
            RaggedChain([corpus.target for corpus in corpora_of_ids]),
        )
    return PreparedData(
        splits=splits,
        tokenizer=tokenizer,
        train=train,
        validation=encode(splits.validation, tokenizer),
        kept=np.intersect1d(filters.tokens(train, splits.train.name), rows),
        more_validation={
            name: encode(part, tokenizer) for name, part in splits.more_validation.items()
        },
    )


def _training_rows(splits: Splits, filters: Filters) -> np.ndarray:
    """Returns the indices of the training pairs, without validation and test pairs if
    `filters.drop_held_out` is true.
    """
    count = len(splits.train)
    if not filters.drop_held_out:
        return np.arange(count, dtype=np.uint32)
    rows = not_held_out(splits)
    filters.report(splits.train.name, count, len(rows), {"held out": count - len(rows)})
    return rows


def _source_columns(splits: Splits, lines: Text) -> Columns:
    """Returns the column layout of source lines, with the factor values that occur in `lines`."""
    names = (*splits.languages[0].split("+"), *splits.factors)
    values: list[set[str]] = [set() for _ in splits.factors]
    # The training data may be large, so it is read only if there are factors.
    for line in lines if values else ():
        for values_of_factor, column in zip(values, line.split(TAB)[1:], strict=True):
            values_of_factor.update(column.split())
    return Columns(splits.sources, tuple(tuple(sorted(v)) for v in values), names, splits.pictures)


def _trained(tokenizer: Untrained, splits: Splits, ranks: Ranks) -> Tokenizer:
    """Trains a tokenizer on the training pairs, and returns the tokenizer."""
    train = splits.train
    columns = _source_columns(splits, train.source)
    # An image-only source has no words; its vocabulary is a placeholder.
    source = texts(train.source, columns) if columns.sources else train.target
    trained = train_once(tokenizer, source, train.target, ranks, train.store)
    return replace(trained, columns=columns)


def _check_columns(columns: Columns, splits: Splits) -> None:
    """Raises UserError if the source lines do not have the columns that the model expects."""
    data_columns = _source_columns(splits, ())
    names = data_columns.names
    # Only the numbers of columns are compared, not their names and values.
    if data_columns != replace(columns, factors=((),) * len(columns.factors), names=names):
        raise UserError(
            f"data: source lines contain {data_columns.described}, but the initial model expects "
            f"{columns.described}"
        )
    if not columns.plain and not columns.picture and columns.names != names:
        log.warning(
            "data: the columns %s are used as the columns %s of the model",
            ", ".join(names),
            ", ".join(columns.names),
        )


def texts(source: Text, columns: Columns) -> Text:
    """Returns all texts of the source lines, without factors and image names."""
    if columns.plain:
        return source
    return [text for line in source for text in columns.split(line)[: columns.sources]]


class EpochBatches:
    """Batches of one epoch, created on demand as a pure function of (data, seed, epoch).

    With random segmentation, sentences are grouped by the lengths of their deterministic
    segmentation.

    data: prepared training data
    batching: settings that determine the batches
    seed: random seed of the run
    epoch: index of the epoch, from 0
    reader: function that reads the images of a batch; None for text only
    ahead: number of worker processes that prepare batches in advance
    mixing: schedule of a mixture; None for a single corpus
    """

    def __init__(
        self,
        data: PreparedData,
        batching: Batching,
        seed: int,
        epoch: int,
        reader: ReadPictures | None = None,
        ahead: int = 0,
        mixing: Mixing | None = None,
    ) -> None:
        self.data = data
        self.reader = reader
        self.ahead = ahead
        self.key = f"{seed} {epoch}"
        self.segmentation_seed = hash((seed, epoch)) % 2**31 if data.tokenizer.sampling else None
        self.modifiers: list[Sequence[Modifier]] = []  # the modifiers that apply to each batch
        self.indices: list[np.ndarray] = []  # the indices of the pairs in each batch
        segments: Sequence[tuple[Stage | None, np.ndarray]] = [(None, data.kept)]
        if mixing is not None:
            segments = mixing.epoch(epoch)
        source_lengths = data.train.source.lengths
        target_lengths = data.train.target.lengths
        for stage, rows in segments:  # a batch belongs to one stage
            batches = batching.indices(source_lengths[rows], target_lengths[rows], seed, epoch)
            self.indices += [rows[batch] for batch in batches]
            self.modifiers += [() if stage is None else stage.modifiers] * len(batches)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, i: int, /) -> Batch:
        if self.segmentation_seed is None and not self.modifiers[i]:
            return collate(self.data.train, self.indices[i], self.reader)
        pairs = self.data.splits.train.select(self.indices[i])
        if self.modifiers[i]:
            pairs = self.modified_pairs(pairs, i)
        # Modified or randomly segmented text is encoded for each batch.
        corpus = encode(pairs, self.data.tokenizer, self.segmentation_seed)
        return collate(corpus, range(len(corpus)), self.reader)

    def modified_pairs(self, pairs: Pairs, i: int) -> Pairs:
        """Returns the pairs of batch `i`, changed by the modifiers of the batch's mixture stage.

        The changes are a pure function of (seed, epoch, batch).
        """
        rng = random.Random(f"{self.key} {i}")
        mixture = self.data.splits.mixture
        assert mixture is not None, "modifiers are supported by data=mix only"
        modified: list[tuple[str, str]] = []
        for source, target in zip(pairs.source, pairs.target, strict=True):
            tag = tag_of(source, mixture.tags)  # modifiers change only the text after the tag
            results = applied(self.modifiers[i], (source.removeprefix(tag), target), rng)
            modified += [(tag + text, translation) for text, translation in results]
        sources, targets = zip(*modified, strict=True)
        return Pairs(sources, targets, pairs.name)

    def read(self, indices: Sequence[int]) -> Iterator[Batch]:
        """Yields the batches with the given indices, in order."""
        processes = self.ahead if len(indices) > 1 else 0
        return ordered_map(self.__getitem__, indices, processes)

    @property
    def padding(self) -> float:
        """Fraction of padding among the token positions of the first MEASURED batches."""
        return padding_share(
            self.indices[:MEASURED], self.data.train.source.lengths, self.data.train.target.lengths
        )
