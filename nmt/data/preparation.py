"""Prepares training data: filters and encodes sentence pairs, and trains their tokenizer."""

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data import Pairs, Splits, Text, chained
from nmt.data.filters import Filters
from nmt.data.overlap import training_rows
from nmt.data.ragged import Corpus, RaggedChain, encode
from nmt.data.store import encoded
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import UNK
from nmt.foundation.ranks import ALONE, Ranks
from nmt.storage.cache import build_once
from nmt.tokenizer import Tokenizer, Train, Untrained
from nmt.tokenizer.columns import TAB, Columns

log = logging.getLogger(__name__)
CHECKED_PAIRS = 1000
"""Number of pairs of a data set in which unknown tokens are counted."""
UNKNOWN_SHARE = 0.25
"""Share of unknown tokens above which a warning is logged. In text of an unknown script, about half
of the tokens are unknown; the others are spaces."""
SHARED = "NMT_TOKENIZERS"
"""Environment variable with the folder in which runs share SentencePiece models."""


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
    ranks: processes (ranks) that train together
    store: folder of the filtered pairs on disk; None for pairs in memory. Trained SentencePiece
        models are cached in the folder that the environment variable NMT_TOKENIZERS names,
        otherwise in the subfolder `tokenizers` of `store`
    """
    folder = os.environ.get(SHARED) or (store and store / "tokenizers")
    shared = partial(_shared_model, Path(folder)) if folder else None
    return ranks.on_first(partial(tokenizer.train, source, target, shared))


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
    ranks: processes (ranks) that train together

    Raises UserError if the filters drop all pairs, or if a trained tokenizer expects other columns.
    """
    mixture = splits.mixture
    corpora = {"": splits.train} if mixture is None else mixture.corpora
    corpora = {name: filters.text(pairs) for name, pairs in corpora.items()}
    parts = [*corpora.values()]
    splits = replace(
        splits,
        mixture=None if mixture is None else replace(mixture, corpora=corpora),
        train=parts[0] if mixture is None else chained(parts, splits.train.name),
    )
    rows = training_rows(splits, filters)
    if not isinstance(tokenizer, Tokenizer):
        is_part = len(rows) < len(splits.train)
        text = replace(splits, train=splits.train.select(rows)) if is_part else splits
        tokenizer = _trained(tokenizer, text, ranks)
    _check_columns(tokenizer.columns, splits)
    train = _encoded(parts, tokenizer)
    validation = encode(splits.validation, tokenizer)
    for name, corpus in ((splits.train.name, train), (splits.validation.name, validation)):
        _warn_of_unknown_tokens(name, corpus, tokenizer)
    kept = np.intersect1d(filters.tokens(train, splits.train.name), rows)
    if not len(kept):  # each filter alone keeps some pairs
        filters.report(splits.train.name, len(train), 0, {"held out or too long": len(train)})
    return PreparedData(
        splits=splits,
        tokenizer=tokenizer,
        train=train,
        validation=validation,
        kept=kept,
        more_validation={
            name: encode(part, tokenizer) for name, part in splits.more_validation.items()
        },
    )


def _encoded(parts: Sequence[Pairs], tokenizer: Tokenizer) -> Corpus:
    """Returns the encoded pairs of one corpus or several corpora, in memory or on disk."""
    corpora: list[Any] = [
        encode(part, tokenizer) if part.store is None else encoded(part, tokenizer)
        for part in parts
    ]
    if len(corpora) == 1:
        return corpora[0]
    return Corpus(
        RaggedChain([corpus.source for corpus in corpora]),
        RaggedChain([corpus.target for corpus in corpora]),
    )


def _warn_of_unknown_tokens(name: str, corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Logs a warning if the vocabulary does not fit the text of the first pairs.

    name: name of the data set
    corpus: encoded pairs
    tokenizer: tokenizer of the pairs
    """
    first = np.arange(min(CHECKED_PAIRS, len(corpus)))
    # With factors, ids are combinations of subwords and factor values.
    for side, sentences, size in (
        ("source", corpus.source, tokenizer.source_size),
        ("target", corpus.target, tokenizer.target_size),
    ):
        ids = sentences.select(first).ids % size
        share = np.count_nonzero(ids == UNK) / max(1, len(ids))
        if share > UNKNOWN_SHARE:
            log.warning(
                "%s: %.0f %% of the %s tokens are not in the vocabulary; check the language of the "
                "text, or with init= set init_vocabulary=grow, which adds subwords of the text",
                name,
                100 * share,
                side,
            )


def _source_columns(splits: Splits, lines: Text) -> Columns:
    """Returns the column layout of source lines. The values of each factor are collected from
    `lines`."""
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
            "data: the model reads the columns %s instead of the columns %s of its training data",
            ", ".join(names),
            ", ".join(columns.names),
        )


def texts(source: Text, columns: Columns) -> Text:
    """Returns all texts of the source lines, without factors and image names."""
    if columns.plain:
        return source
    return [text for line in source for text in columns.split(line)[: columns.sources]]
