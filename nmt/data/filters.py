"""Filters for training pairs, and the digest of a corpus."""

import hashlib
import json
import logging
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

from nmt.data import Pairs, Text, tag_of
from nmt.data.lines import CHUNK
from nmt.data.ragged import Corpus
from nmt.foundation.errors import UserError
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import NonNegative, Ratio, Size

log = logging.getLogger(__name__)
DIGEST = "digest"
"""Name of the file in a store that contains the digest of the corpus before filtering."""


@dataclass(frozen=True)
class Filters:
    """Filters for training pairs; the number of dropped pairs is logged by reason.

    Pairs with an empty side are always dropped.

    tags: tags at the beginning of source lines, which the filters ignore
    max_length: maximum sentence length on either side, in tokens
    max_ratio: maximum length ratio of the longer to the shorter side, in tokens; 0 disables the
        filter
    drop_duplicates: whether only the first of identical pairs is kept
    drop_identical: whether pairs whose source equals the target are dropped
    drop_held_out: whether pairs that are also validation or test pairs are dropped
    max_symbols: maximum fraction of digits, punctuation and other symbols among the non-space
        characters of either side
    """

    tags: Sequence[str] = ()
    _: KW_ONLY
    max_length: Size = 250
    max_ratio: NonNegative = 0.0
    drop_duplicates: bool = False
    drop_identical: bool = False
    drop_held_out: bool = False
    max_symbols: Ratio = 1.0

    @property
    def key(self) -> str:
        """Filter settings as a string, which is part of the cache key of stored pairs."""
        later = ("max_length", "max_ratio", "drop_held_out")  # applied after reading the store
        return str(sorted((k, v) for k, v in vars(self).items() if k not in later))

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the keys that have no effect, each with the reason: `filters.max_ratio` if the
        source consists of an image only.
        """
        return {} if run.sources else {"filters.max_ratio": "an image has no length in tokens"}

    def text(self, pairs: Pairs) -> Pairs:
        """Returns the pairs that pass the filters that need no tokenizer: empty sides, identical
        sides, too many symbols, and duplicates. Raises UserError if no pair passes."""
        if pairs.store is not None:  # stored pairs have already passed the filters
            return pairs
        passing, dropped = self.sift(pairs.source, pairs.target)
        if self.drop_duplicates:
            # Reverse order keeps the first of identical pairs.
            first = {(pairs.source[i], pairs.target[i]): i for i in reversed(passing)}
            dropped["duplicate"] = len(passing) - len(first)
            passing = sorted(first.values())
        self.report(pairs.name, len(pairs), len(passing), dropped)
        return pairs if len(passing) == len(pairs) else pairs.select(passing)

    def sift(self, source: Text, target: Text) -> tuple[list[int], dict[str, int]]:
        """Drops pairs with an empty side, identical sides or too many symbols.

        Returns the indices of the kept pairs, and the number of dropped pairs by reason.
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
        """Returns the indices of the pairs that have tokens on both sides, and pass the length and
        ratio filters. Text of invisible characters may have no tokens after normalisation.

        Raises UserError if no pair passes.
        """
        source = corpus.source.lengths
        target = corpus.target.lengths
        longest = np.maximum(source, target)  # [pairs]
        shortest = target if corpus.pictures is not None else np.minimum(source, target)
        is_empty = shortest == 0
        is_long = longest > self.max_length
        within = ~is_empty & ~is_long
        # Each dropped pair counts for one reason only.
        dropped = {"empty": int(is_empty.sum()), "too long": int((is_long & ~is_empty).sum())}
        if self.max_ratio:
            balanced = longest <= self.max_ratio * np.maximum(1, np.minimum(source, target))
            dropped["ratio"] = int((within & ~balanced).sum())
            within &= balanced
        passing = np.flatnonzero(within).astype(np.uint32)
        self.report(name, len(corpus), len(passing), dropped)
        return passing

    def report(self, name: str, before: int, after: int, dropped: Mapping[str, int]) -> None:
        """Logs the number of dropped pairs by reason. Raises UserError if no pair is left.

        name: name of the sentence pairs, for messages
        before, after: number of pairs before and after filtering
        dropped: number of dropped pairs by reason
        """
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items() if count)
        if reasons:
            log.info(
                "%s: kept %s of %s pairs (dropped: %s)", name, f"{after:,}", f"{before:,}", reasons
            )
        if not after:
            raise UserError(
                f"{name}: the filters dropped all {before:,} sentence pairs ({reasons}). Relax the "
                "filters, such as filters.max_length; empty lines are always dropped"
            )


def symbols(text: str) -> float:
    """Returns the fraction of symbols among the non-space characters of a text. Symbols are all
    characters except letters and combining marks.
    """
    categories = map(unicodedata.category, text)
    # Control and format characters, such as a zero width joiner, are invisible.
    visible = [kind for kind in categories if kind[0] != "Z" and kind not in ("Cc", "Cf")]
    num_symbols = sum(kind[0] not in "LM" for kind in visible)
    return num_symbols / len(visible) if visible else 1.0


def fingerprint(pairs: Pairs) -> str:
    """Returns the SHA-256 digest of a corpus before filtering; equal for the same sentences in the
    same order."""
    if pairs.store is not None:
        return (pairs.store / DIGEST).read_text(encoding="utf-8")
    columns = [*pairs.columns.values(), *pairs.more_references]
    return digest_of_columns(map(_chunks, columns), pairs.content)


def digest_of_columns(columns: Iterable[Iterable[Sequence[str]]], content: str = "") -> str:
    """Returns the SHA-256 digest of a corpus, each of whose columns is given as chunks of lines.

    content: digest of the images that the source lines name; "" without images
    """
    digest = hashlib.sha256()
    for chunks in columns:
        # Each column is hashed as a JSON list, one chunk at a time, in constant memory.
        digest.update(b"[")
        separator = ""
        for chunk in filter(len, chunks):
            lines = json.dumps([*chunk], ensure_ascii=False)[1:-1]
            digest.update((separator + lines).encode("utf-8", "surrogatepass"))
            separator = ", "
        digest.update(b"]")
    digest.update(content.encode())
    return digest.hexdigest()


def _chunks(text: Text) -> Iterator[Sequence[str]]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))
