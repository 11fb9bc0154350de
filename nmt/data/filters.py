"""Filters of training pairs, and the fingerprint that identifies a text."""

import hashlib
import json
import logging
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from nmt.data import Pairs, Text, tag_of
from nmt.data.ragged import Corpus
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import NonNegative, Ratio, Size

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Filters:
    """Filters of training pairs; dropped pairs are counted and reported.

    Pairs with an empty side are always dropped.

    tags: tags in front of source lines, which do not count as text.
    max_length: longest sentence of either side, in tokens.
    max_ratio: largest ratio of token counts (0: any).
    drop_duplicates: whether only the first of equal pairs is kept.
    drop_identical: whether pairs with equal sides are dropped.
    max_symbols: largest share of digits, punctuation and other symbols among the characters of
        either side, without spaces.
    """

    tags: Sequence[str] = ()
    _: KW_ONLY
    max_length: Size = 250
    max_ratio: NonNegative = 0.0
    drop_duplicates: bool = False
    drop_identical: bool = False
    max_symbols: Ratio = 1.0

    @property
    def key(self) -> str:
        """The settings as text; part of the name of a store."""
        # Without tags, the key is that of stores made before there were tags.
        settings = {name: value for name, value in vars(self).items() if name != "tags" or value}
        return str(sorted(settings.items()))

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """The ratio of lengths, for a source without words."""
        return {} if run.sources else {"filters.max_ratio": "a picture has no length"}

    def text(self, pairs: Pairs) -> Pairs:
        """The pairs that pass the filters of text. Raises UserError if none does."""
        passing, dropped = self.sift(pairs.source, pairs.target)
        if self.drop_duplicates:
            # In reverse, so that the first of equal pairs is the one that stays.
            first = {(pairs.source[i], pairs.target[i]): i for i in reversed(passing)}
            dropped["duplicate"] = len(passing) - len(first)
            passing = sorted(first.values())
        self.report(pairs.name, len(pairs), len(passing), dropped)
        return pairs if len(passing) == len(pairs) else pairs.select(passing)

    def sift(self, source: Text, target: Text) -> tuple[list[int], dict[str, int]]:
        """Pairs that pass all filters of text except that of duplicates.

        Returns the numbers of the pairs, and the number of dropped pairs by the reason.
        """
        passing = []
        dropped = {"empty": 0, "identical": 0, "symbols": 0}
        for i, (tagged, translation) in enumerate(zip(source, target, strict=True)):
            text = tagged.removeprefix(tag_of(tagged, self.tags))
            if not text.strip() or not translation.strip():
                dropped["empty"] += 1
            elif self.drop_identical and text.strip() == translation.strip():
                dropped["identical"] += 1
            elif self.max_symbols < 1 and max(map(symbols, (text, translation))) > self.max_symbols:
                dropped["symbols"] += 1
            else:
                passing.append(i)
        return passing, dropped

    def tokens(self, corpus: Corpus, name: str) -> np.ndarray:
        """Numbers of the pairs that pass the filters of length and ratio.

        Raises UserError if no pair passes.
        """
        source = corpus.source.lengths
        target = corpus.target.lengths
        longest = np.maximum(source, target)  # [pairs]
        within = longest <= self.max_length
        dropped = {"too long": int((~within).sum())}
        if self.max_ratio:
            balanced = longest <= self.max_ratio * np.maximum(1, np.minimum(source, target))
            dropped["ratio"] = int((within & ~balanced).sum())  # each pair has one reason
            within &= balanced
        passing = np.flatnonzero(within).astype(np.uint32)
        self.report(name, len(corpus), len(passing), dropped)
        return passing

    def report(self, name: str, before: int, after: int, dropped: Mapping[str, int]) -> None:
        """Logs the numbers of dropped pairs. Raises UserError if no pair is left.

        name: name of the pairs.
        before, after: number of pairs before and after filtering.
        dropped: number of dropped pairs by the reason.
        """
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items() if count)
        if reasons:
            log.info(
                "%s: kept %s of %s pairs (dropped: %s)", name, f"{after:,}", f"{before:,}", reasons
            )
        if not after:
            raise UserError(
                f"{name}: no sentence pairs left of {before:,} (dropped: {reasons}). See "
                "filters.max_length and the other keys of filters"
            )


class _LetterTable(dict[int, int | None]):
    """Translation table that maps letters and their marks to "a" and deletes spaces."""

    def __missing__(self, code: int) -> int | None:
        # Called once for each character; `str.translate` does the rest without Python.
        category = unicodedata.category(chr(code))
        is_space = category[0] == "Z" or category == "Cc"
        letter = ord("a") if category[0] in "LM" else code
        return self.setdefault(code, None if is_space else letter)


_LETTERS = _LetterTable()


def symbols(text: str) -> float:
    """Share of symbols among the characters of a text without spaces; letters are not symbols."""
    letters = text.translate(_LETTERS)
    return 1 - letters.count("a") / len(letters) if letters else 1.0


def fingerprint(pairs: Pairs) -> str:
    """SHA-256 of the text; equal for the same sentences in the same order."""
    if pairs.store is not None:
        return hashlib.sha256(f"{pairs.store.name} {len(pairs)}".encode()).hexdigest()
    digest = hashlib.sha256()
    for column in pairs.columns.values():
        # Each column as a JSON list, one line at a time, so that memory does not grow.
        for i, line in enumerate(column):
            digest.update(("[" if i == 0 else ", ").encode())
            digest.update(json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        digest.update(b"]" if len(column) else b"[]")
    digest.update(pairs.content.encode())
    return digest.hexdigest()
