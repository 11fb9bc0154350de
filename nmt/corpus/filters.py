"""Which training pairs are kept; and the fingerprint that identifies a text."""

from __future__ import annotations

import hashlib
import json
import logging

import numpy as np

from nmt.corpus.ragged import Corpus
from nmt.data import Pairs
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import NonNegative, Size

log = logging.getLogger(__name__)


class Filters:
    """Which training pairs are kept. Dropped pairs are counted and reported.

    max_length: longest sentence in tokens (either side); max_ratio: largest ratio of token counts (0: any);
    drop_duplicates: keep the first of equal pairs. Pairs with an empty side are always dropped.
    """

    def __init__(self, *, max_length: Size = 250, max_ratio: NonNegative = 0.0, drop_duplicates: bool = False) -> None:
        self.max_length, self.max_ratio, self.drop_duplicates = max_length, max_ratio, drop_duplicates

    def text(self, pairs: Pairs) -> Pairs:
        """Drops pairs with an empty side and, if asked to, duplicates. Raises UserError if nothing is left."""
        keep, seen, counts = [], set[tuple[str, str]](), {"empty": 0, "duplicate": 0}
        for i, pair in enumerate(zip(pairs.source, pairs.target, strict=True)):
            if not pair[0].strip() or not pair[1].strip():
                counts["empty"] += 1
            elif self.drop_duplicates and pair in seen:
                counts["duplicate"] += 1
            else:
                keep.append(i)
                if self.drop_duplicates:
                    seen.add(pair)
        self._report(pairs.name, len(pairs), len(keep), counts)
        if len(keep) == len(pairs):
            return pairs
        return pairs.chosen(keep)

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
        kept = np.flatnonzero(within)
        self._report(name, len(corpus), len(kept), counts)
        return kept

    def _report(self, name: str, before: int, after: int, counts: dict[str, int]) -> None:
        dropped = ", ".join(f"{count:,} {why}" for why, count in counts.items() if count)
        if dropped:
            log.info("%s: kept %s of %s pairs (dropped: %s)", name, f"{after:,}", f"{before:,}", dropped)
        if not after:
            remedy = "See filters.max_length and the other keys of filters"
            raise UserError(f"{name}: no sentence pairs left of {before:,} (dropped: {dropped}). {remedy}")


def fingerprint(pairs: Pairs) -> str:
    """SHA-256 of the text: two runs with the same fingerprint saw the same sentences in the same order."""
    digest = hashlib.sha256()
    sides = (pairs.source, pairs.target) if pairs.links is None else (pairs.source, pairs.target, pairs.links)
    for side in sides:  # hashed as JSON lists, one line at a time
        for i, line in enumerate(side):
            digest.update(("[" if i == 0 else ", ").encode())
            digest.update(json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        digest.update(b"]" if len(side) else b"[]")
    digest.update(pairs.content.encode())
    return digest.hexdigest()
