"""Which training pairs are kept; and the fingerprint that identifies a text."""

from __future__ import annotations

import hashlib
import json
import logging
import unicodedata
from collections.abc import Sequence

import numpy as np

from nmt.data import Pairs, Text, tag_of
from nmt.data.ragged import Corpus
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import NonNegative, Ratio, Size

log = logging.getLogger(__name__)


class Filters:
    """Which training pairs are kept. Dropped pairs are counted and reported.

    max_length: longest sentence in tokens (either side); max_ratio: largest ratio of token counts (0: any);
    drop_duplicates: keep the first of equal pairs; drop_identical: no pairs with equal sides; max_symbols: largest share of
    the characters of either side, spaces left out, that are digits, punctuation or other symbols. Pairs with an empty side
    are always dropped. `tags` in front of source lines are not judged.
    """

    def __init__(
        self,
        *,
        max_length: Size = 250,
        max_ratio: NonNegative = 0.0,
        drop_duplicates: bool = False,
        drop_identical: bool = False,
        max_symbols: Ratio = 1.0,
        tags: Sequence[str] = (),
    ) -> None:
        self.max_length, self.max_ratio, self.drop_duplicates = (
            max_length,
            max_ratio,
            drop_duplicates,
        )
        self.drop_identical, self.max_symbols, self.tags = drop_identical, max_symbols, tags

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """The ratio of lengths, which a source without words does not have."""
        return {} if run.sources else {"filters.max_ratio": "a picture has no length"}

    def text(self, pairs: Pairs) -> Pairs:
        """Drops pairs with an empty side and, if asked to, noise and duplicates. Raises UserError if nothing is left."""
        keep, counts = self.judged(pairs.source, pairs.target)
        if self.drop_duplicates:
            seen = {(pairs.source[i], pairs.target[i]): i for i in reversed(keep)}
            counts["duplicate"], keep = len(keep) - len(seen), sorted(seen.values())
        self.report(pairs.name, len(pairs), len(keep), counts)
        if len(keep) == len(pairs):
            return pairs
        return pairs.select(keep)

    def judged(self, source: Text, target: Text) -> tuple[list[int], dict[str, int]]:
        """Which pairs are kept, as far as a pair alone can say, and how many are not, by the reason."""
        keep, counts = [], {"empty": 0, "identical": 0, "symbols": 0}
        for i, (first, second) in enumerate(zip(source, target, strict=True)):
            pair = first.removeprefix(tag_of(first, self.tags)), second
            if not pair[0].strip() or not pair[1].strip():
                counts["empty"] += 1
            elif self.drop_identical and pair[0].strip() == pair[1].strip():
                counts["identical"] += 1
            elif self.max_symbols < 1 and max(map(symbols, pair)) > self.max_symbols:
                counts["symbols"] += 1
            else:
                keep.append(i)
        return keep, counts

    def tokens(self, corpus: Corpus, name: str) -> np.ndarray:
        """Indices of the pairs within the bounds on length and ratio. Raises UserError if there are none."""
        source, target = corpus.source.lengths, corpus.target.lengths
        longest = np.maximum(source, target)
        within = longest <= self.max_length
        counts = {"too long": int((~within).sum()), "ratio": 0}
        if self.max_ratio:
            balanced = longest <= self.max_ratio * np.maximum(1, np.minimum(source, target))
            counts["ratio"] = int((within & ~balanced).sum())
            within &= balanced
        kept = np.flatnonzero(within).astype(np.uint32)
        self.report(name, len(corpus), len(kept), counts)
        return kept

    def report(self, name: str, before: int, after: int, counts: dict[str, int]) -> None:
        """Tells what is dropped. Raises UserError if nothing is left."""
        dropped = ", ".join(f"{count:,} {why}" for why, count in counts.items() if count)
        if dropped:
            log.info(
                "%s: kept %s of %s pairs (dropped: %s)", name, f"{after:,}", f"{before:,}", dropped
            )
        if not after:
            remedy = "See filters.max_length and the other keys of filters"
            raise UserError(
                f"{name}: no sentence pairs left of {before:,} (dropped: {dropped}). {remedy}"
            )


class _Symbols(dict[int, int | None]):
    """What is left of a text: letters, and the marks on them, are replaced by a, spaces by nothing."""

    def __missing__(self, code: int) -> int | None:
        kind = unicodedata.category(chr(code))
        self[code] = (
            None if kind[0] == "Z" or kind == "Cc" else ord("a") if kind[0] in "LM" else code
        )
        return self[code]


_SYMBOLS = _Symbols()


def symbols(text: str) -> float:
    """The share of the characters, spaces left out, that are no letters."""
    left = text.translate(_SYMBOLS)
    return 1 - left.count("a") / len(left) if left else 1.0


def fingerprint(pairs: Pairs) -> str:
    """SHA-256 of the text: two runs with the same fingerprint saw the same sentences in the same order."""
    if pairs.store is not None:
        return hashlib.sha256(f"{pairs.store.name} {len(pairs)}".encode()).hexdigest()
    digest = hashlib.sha256()
    sides = (
        (pairs.source, pairs.target)
        if pairs.links is None
        else (pairs.source, pairs.target, pairs.links)
    )
    for side in sides:  # hashed as JSON lists, one line at a time
        for i, line in enumerate(side):
            digest.update(("[" if i == 0 else ", ").encode())
            digest.update(json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        digest.update(b"]" if len(side) else b"[]")
    digest.update(pairs.content.encode())
    return digest.hexdigest()
