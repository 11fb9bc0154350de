"""Words and characters of a text, the same for all models, whatever their pieces.

Words are the parts between spaces. In scripts without spaces between words, ICU's dictionaries
(Unicode Annex 29) cut the text if icu4py is installed; without it, every character is a word.
"""

import functools
import itertools
import operator
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

SPACE = "▁"
"""Space within a piece."""
UNKNOWN = "<unk>"
"""Piece that represents unknown characters."""
SPACELESS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""First words of the Unicode names of letters in scripts without spaces between words."""
ALONE = (*SPACELESS, "IDEOGRAPHIC", "FULLWIDTH")
"""First words of the Unicode names of letters and punctuation in these scripts."""
Split = Callable[[str], list[str]]
"""Cuts a text into units; the spaces between them are left out."""
Units = Literal["word", "piece", "character", "space"]
"""Units of the rows and columns of an attention map, and of alignments."""


@functools.cache
def spaceless(character: str) -> bool:
    """Whether a character is a letter of a script that writes no spaces between words."""
    return unicodedata.name(character, "").startswith(SPACELESS)


@functools.cache
def _alone(character: str) -> bool:
    """Whether a character is a word of its own where no dictionary is installed."""
    return unicodedata.name(character, "").startswith(ALONE)


def words(text: str) -> list[str]:
    """The words of a text, in order; joined, they are the text without its spaces."""
    return [word for chunk in text.split() for word in _within(chunk)]


def characters(text: str) -> list[str]:
    """The characters of a text without its spaces. Marks belong to the character before them."""
    return [group for chunk in text.split() for group in _grouped(chunk, lambda *_: False)]


SPLITS: dict[Units, Split] = {"word": words, "character": characters, "space": str.split}
"""Functions that cut a text into units, by the name of the unit; pieces depend on the model."""


def _within(chunk: str) -> list[str]:
    """The words of a text without spaces."""
    if chunk.isascii() or not any(map(spaceless, chunk)):
        return [chunk]
    breaker = _dictionary()
    if breaker is not None:
        return list(breaker(chunk))
    return _grouped(chunk, lambda part, character: not (_alone(part[0]) or _alone(character)))


def _grouped(chunk: str, joins: Callable[[str, str], bool]) -> list[str]:
    """A text without spaces cut into parts. Marks belong to the part before them.

    chunk: the text, not empty.
    joins: whether a character belongs to the part before it.
    """
    parts = [chunk[0]]  # a mark at the beginning is a part of its own
    for character in chunk[1:]:
        if unicodedata.category(character).startswith("M") or joins(parts[-1], character):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


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
    """Numbers of the words that each piece is a part of, from 0.

    chunks: for each piece, the number of the part of the text, between spaces, that it belongs to.
    pieces: the pieces of the text.
    text: the text.
    split: cuts a text into words.
    """
    words_by_chunk = [split(chunk) for chunk in text.split()] or [[""]]
    first_words = [0, *itertools.accumulate(map(len, words_by_chunk))]
    ranges: list[range] = []  # [pieces]
    pairs = zip(chunks, pieces, strict=True)
    for chunk, group in itertools.groupby(pairs, operator.itemgetter(0)):
        pieces_of_chunk = [piece for _, piece in group]
        first = first_words[chunk]
        if len(words_by_chunk[chunk]) == 1:
            ranges += [range(first, first + 1)] * len(pieces_of_chunk)
        else:
            places = _by_characters(pieces_of_chunk, words_by_chunk[chunk])
            ranges += [range(first + place.start, first + place.stop) for place in places]
    return ranges


def _by_characters(pieces: Sequence[str], parts: Sequence[str]) -> list[range]:
    """For each piece, the parts that have a character in common with it.

    If pieces and parts differ in length, because normalisation has changed characters, positions
    are in proportion.
    """
    numbers = [i for i, part in enumerate(parts) for _ in part]  # part of each character
    lengths = [0 if piece == UNKNOWN else _length(piece) for piece in pieces]
    # Unknown pieces share the characters that the other pieces do not spell.
    rest = max(1, (len(numbers) - sum(lengths)) // max(1, pieces.count(UNKNOWN)))
    lengths = [
        rest if piece == UNKNOWN else length for piece, length in zip(pieces, lengths, strict=True)
    ]
    scale = len(numbers) / max(1, sum(lengths))
    ranges = []
    position = 0
    for piece, length in zip(pieces, lengths, strict=True):
        # A later byte of a character belongs to the character before it.
        continues = _is_byte(piece) and not length and position > 0
        first = min(int((position - continues) * scale), len(numbers) - 1)
        last = min(max(int((position + length) * scale) - 1, first), len(numbers) - 1)
        ranges.append(range(numbers[first], numbers[last] + 1))
        position += length
    return ranges


def _is_byte(piece: str) -> bool:
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _length(piece: str) -> int:
    """Characters of a piece without spaces; a byte counts if a character begins with it."""
    if _is_byte(piece):
        return int(int(piece[3:5], 16) & 0xC0 != 0x80)
    return len(piece.replace(SPACE, ""))
