"""What a text is cut into for people: words, characters, or what stands between spaces; the same for all models, whatever
pieces they have.

Words are what stands between spaces. Scripts that write no spaces between words are cut by ICU's dictionaries (Unicode
Annex 29) if icu4py is installed; without it, every character is a word there.
"""

import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

SPACE, UNKNOWN = "▁", "<unk>"
SPACELESS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Scripts without spaces between words: the Unicode names of their letters begin with one of these."""
ALONE = (*SPACELESS, "IDEOGRAPHIC", "FULLWIDTH")
"""The same with their punctuation."""


@functools.cache
def spaceless(character: str) -> bool:
    """Whether a character is a letter of a script that writes no spaces between words."""
    return unicodedata.name(character, "").startswith(SPACELESS)


@functools.cache
def _alone(character: str) -> bool:
    return unicodedata.name(character, "").startswith(ALONE)


Split = Callable[[str], list[str]]
Units = Literal["word", "piece", "character", "space"]
"""What the rows and columns of a picture are, and what alignments count."""


def words(text: str) -> list[str]:
    """The words of a text, in order; together they are all of it but for the spaces."""
    return [word for chunk in text.split() for word in _within(chunk)]


def characters(text: str) -> list[str]:
    """The characters of a text, spaces left out. Marks belong to the character before them."""
    found: list[str] = []
    for chunk in text.split():
        for i, character in enumerate(chunk):
            if i and unicodedata.category(character).startswith("M"):
                found[-1] += character
            else:
                found.append(character)
    return found


SPLITS: dict[Units, Split] = {"word": words, "character": characters, "space": str.split}
"""All units but pieces, which are a model's own."""


def _within(chunk: str) -> list[str]:
    """The words of a text without spaces."""
    if chunk.isascii() or not any(map(spaceless, chunk)):
        return [chunk]
    breaker = _dictionary()
    if breaker is not None:
        return list(breaker(chunk))
    found, joins = [chunk[0]], not _alone(chunk[0])
    for character in chunk[1:]:
        mark = unicodedata.category(character).startswith("M")
        if mark or (joins and not _alone(character)):
            found[-1] += character
        else:
            found.append(character)
        joins = joins if mark else not _alone(character)
    return found


@functools.cache
def _dictionary() -> Callable[[str], Iterable[str]] | None:
    """ICU's word breaker, if it is installed."""
    try:
        from icu4py.breakers import WordBreaker
    except ImportError:
        return None
    return lambda chunk: WordBreaker(chunk, "root")


def covered(
    chunks: Sequence[int], pieces: Sequence[str], text: str, split: Split = words
) -> list[range]:
    """The words that each piece is a part of, numbered from 0. `chunks`: for each piece, which of the parts of the text
    between spaces it belongs to; `split`: what a word is."""
    parts = [split(chunk) for chunk in text.split()]
    begins, number = [], 0
    for part in parts:
        begins.append(number)
        number += len(part)
    found: list[range] = []
    for chunk, group in itertools.groupby(
        zip(chunks, pieces, strict=True), key=lambda pair: pair[0]
    ):
        own = [piece for _, piece in group]
        begin, part = (
            (begins[chunk], parts[chunk]) if chunk < len(parts) else (max(number - 1, 0), [""])
        )
        if len(part) == 1:
            found += [range(begin, begin + 1)] * len(own)
        else:
            found += [range(begin + r.start, begin + r.stop) for r in _by_characters(own, part)]
    return found


def _by_characters(pieces: Sequence[str], parts: Sequence[str]) -> list[range]:
    """For each piece, the parts that have a character in common with it. If pieces and parts differ in length, because
    normalisation has changed characters, positions are in proportion."""
    numbers = [i for i, part in enumerate(parts) for _ in part]
    sizes, unknown = [_characters(piece) for piece in pieces], pieces.count(UNKNOWN)
    if unknown:  # it stands for what the others do not spell
        rest = max(
            1,
            (len(numbers) - sum(s for s, p in zip(sizes, pieces, strict=True) if p != UNKNOWN))
            // unknown,
        )
        sizes = [rest if p == UNKNOWN else s for s, p in zip(sizes, pieces, strict=True)]
    scale, found, at = len(numbers) / max(1, sum(sizes)), [], 0
    for piece, size in zip(pieces, sizes, strict=True):
        lengthens = (
            _is_byte(piece) and not size and at > 0
        )  # a later byte belongs to the character before it
        first = min(int((at - lengthens) * scale), len(numbers) - 1)
        last = min(max(int((at + size) * scale) - 1, first), len(numbers) - 1)
        found.append(range(numbers[first], numbers[last] + 1))
        at += size
    return found


def _is_byte(piece: str) -> bool:
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _characters(piece: str) -> int:
    """Characters of a piece, spaces left out; a byte counts if a character begins with it."""
    if _is_byte(piece):
        return int(int(piece[3:5], 16) & 0xC0 != 0x80)
    return len(piece.replace(SPACE, ""))
