"""Detection of validation and test pairs that are also training pairs.

Scores on such pairs are too high, because the network was trained on their translations.
"""

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nmt.data import Pairs, Splits, Text, tag_of
from nmt.data.filters import Filters
from nmt.data.lines import CHUNK
from nmt.data.store import StoredText

log = logging.getLogger(__name__)
MOST_PAIRS = 4_000_000
"""Maximum number of training pairs that are compared, half of them from each end of the corpus.

Comparing a million pairs takes about one second.
"""
SERIOUS = 0.01
"""A warning is logged if at least this fraction of the held-out pairs or sentences occurs in the
training data."""


def held_out_in_training(splits: Splits, *, are_dropped: bool = False) -> dict[str, int]:
    """Counts and logs the pairs of each validation and test set that are also training pairs.

    Pairs are equal if both sides are equal without the spaces around them.

    splits: training, validation and test sets
    are_dropped: whether `filters.drop_held_out` drops these pairs from the training set; all counts
        are then 0, and nothing is logged

    Returns the count by name of the set.
    """
    held_out = _held_out(splits)
    if are_dropped:
        return dict.fromkeys(held_out, 0)
    corpora = [splits.train] if splits.mixture is None else splits.mixture.corpora.values()
    # Set intersection runs at the speed of C, and stops early if all pairs have been found.
    common = {pair for pairs in held_out.values() for pair in pairs}.intersection(
        itertools.chain.from_iterable(_training_pairs(corpus, _tags(splits)) for corpus in corpora)
    )
    counts = {name: sum(pair in common for pair in pairs) for name, pairs in held_out.items()}
    for name, count in counts.items():
        size = len(held_out[name])
        if count:
            log.log(
                logging.WARNING if count >= SERIOUS * size else logging.INFO,
                "data: %s of %s %s pairs are also training pairs, which makes scores too "
                "high; filters.drop_held_out=true drops these training pairs",
                f"{count:,}",
                f"{size:,}",
                name,
            )
    return counts


def warn_of_held_out_lines(splits: Splits, lines: Iterable[str], side: int, name: str) -> None:
    """Logs a warning if a monolingual text contains validation or test sentences.

    splits: training, validation and test sets
    lines: monolingual text
    side: language of the text, 0 for source and 1 for target
    name: name of the text, for the message
    """
    held_out = {pair[side] for pairs in _held_out(splits).values() for pair in pairs}
    common = held_out.intersection(map(str.strip, lines))
    if common and len(common) >= SERIOUS * len(held_out):
        log.warning(
            "%s: contains %s of %s validation and test sentences, so the scores will be too high; "
            "remove these sentences from the text",
            name,
            f"{len(common):,}",
            f"{len(held_out):,}",
        )


def training_rows(splits: Splits, filters: Filters) -> np.ndarray:
    """Returns the indices of the training pairs, without validation and test pairs if
    `filters.drop_held_out` is true."""
    count = len(splits.train)
    if not filters.drop_held_out:
        return np.arange(count, dtype=np.uint32)
    held_out = {pair for pairs in _held_out(splits).values() for pair in pairs}
    train = _stripped(splits.train.source, splits.train.target, _tags(splits))
    rows = np.flatnonzero([pair not in held_out for pair in train]).astype(np.uint32)
    filters.report(splits.train.name, count, len(rows), {"held out": count - len(rows)})
    return rows


def _held_out(splits: Splits) -> dict[str, list[tuple[str, str]]]:
    """Returns the pairs of each validation and test set by name, one for each reference, without
    leading and trailing spaces."""
    parts = {"validation": splits.validation, **splits.more_validation, "test": splits.test}
    return {
        name: [
            pair
            for references in (part.target, *part.more_references)
            for pair in _stripped(part.source, references)
            if pair[1]  # an image may have fewer captions than others
        ]
        for name, part in parts.items()
        if part is not None
    }


def _tags(splits: Splits) -> Sequence[str]:
    """Returns the tags at the beginning of training sentences; validation and test sentences have
    no tags."""
    return () if splits.mixture is None else splits.mixture.tags


def _stripped(source: Text, target: Text, tags: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yields pairs without spaces around both sides, and without tags."""
    if tags:
        source = [line.removeprefix(tag_of(line, tags)) for line in source]
    return zip(map(str.strip, source), map(str.strip, target), strict=True)


def _training_pairs(corpus: Pairs, tags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the pairs of a corpus without tags. From a corpus of more than MOST_PAIRS pairs, yields
    only the first and the last MOST_PAIRS / 2 pairs, rounded to whole chunks of CHUNK pairs."""
    source, target = corpus.source, corpus.target
    if corpus.store is not None:
        # Reading all stored lines in order is faster than selecting the lines that are kept.
        source, target = (StoredText(corpus.store, name) for name in ("source", "target"))
    starts = [*range(0, len(source), CHUNK)]
    half = MOST_PAIRS // CHUNK // 2
    del starts[half : max(half, len(starts) - half)]
    for start in starts:
        rows = slice(start, start + CHUNK)
        yield from _stripped(source[rows], target[rows], tags)
