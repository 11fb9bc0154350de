"""Splits text into words and characters, independently of the tokenizer's subwords.

Words are separated by spaces. Scripts without spaces are split by ICU's dictionaries (Unicode Annex
29) if icu4py is installed, otherwise into single characters.
"""

import codecs
import functools
import itertools
import operator
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, get_args

from nmt.foundation.errors import UserError

SPACE = "▁"
"""Symbol that represents a space in a subword."""
UNKNOWN = "<unk>"
"""Subword that represents unknown characters."""
MARKS = "".join(c for c in map(chr, range(0x1F000)) if unicodedata.category(c)[0] == "M")
MARKS += "\u200c\u200d"  # zero width (non-)joiners
"""Combining marks, such as the vowel signs of Devanagari, and invisible joiners, as in Persian.
They are part of words, but `\\w` does not match them."""
EDGES = re.compile(rf"^[^\w{MARKS}]+|[^\w{MARKS}]+$")
"""Pattern of the punctuation around a word."""
SPACELESS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
"""Prefixes of the Unicode names of letters in scripts without spaces between words."""
ALONE = (*SPACELESS, "IDEOGRAPHIC", "FULLWIDTH")
"""Prefixes of Unicode names of characters. Without icu4py, which divides text into words by
dictionaries, each of these characters counts as one word."""
Split = Callable[[str], list[str]]
"""Function that splits a text into units without the spaces between them."""
Units = Literal["word", "piece", "character", "space"]
"""Units of text in alignments and attention maps; `space` means space-separated tokens."""


def lengthens(character: str) -> bool:
    """Returns whether a character beside a word is part of it: a letter or digit of a script that
    separates words by spaces, a combining mark, or an invisible joiner."""
    is_letter = character.isalnum() or (bool(character) and character in MARKS)
    return is_letter and not spaceless(character)


def check_units(units: str) -> None:
    """Raises UserError if `units` is not the name of a kind of unit."""
    if units not in get_args(Units):
        raise UserError(f"units={units}: unknown; choose {' or '.join(get_args(Units))}")


@functools.cache
def spaceless(character: str) -> bool:
    """Returns whether a character is a letter of a script without spaces between words."""
    return unicodedata.name(character, "").startswith(SPACELESS)


@functools.cache
def _alone(character: str) -> bool:
    """Returns whether a character counts as one word if the text is not divided by dictionaries."""
    return unicodedata.name(character, "").startswith(ALONE)


def words(text: str) -> list[str]:
    """Splits a text into words; the concatenation of the words is the text without spaces."""
    return [word for chunk in text.split() for word in _within(chunk)]


def bare(word: str) -> str:
    """Returns a word without leading and trailing punctuation."""
    return EDGES.sub("", word)


def without(text: str, removed: Collection[int]) -> str:
    """Returns a text without some of its words. The spaces around the words stay.

    removed: indices of the removed words, from 0
    """
    shorter = ""
    end = 0
    for i, word in enumerate(words(text)):
        begin = text.index(word, end)
        shorter += text[end:begin] + ("" if i in removed else word)
        end = begin + len(word)
    return shorter + text[end:]


def characters(text: str) -> list[str]:
    """Splits a text into characters and drops spaces; combining marks stay with the preceding
    character."""
    return [group for chunk in text.split() for group in _grouped(chunk, lambda *_: False)]


SPLITS: dict[Units, Split] = {"word": words, "character": characters, "space": str.split}
"""Functions that split a text into units, by the name of the unit."""


def _within(chunk: str) -> list[str]:
    """Splits a text without spaces into words."""
    if chunk.isascii() or not any(map(spaceless, chunk)):
        return [chunk]
    breaker = _dictionary()
    if breaker is not None:
        return list(breaker(chunk))
    return _grouped(chunk, lambda part, character: not (_alone(part[0]) or _alone(character)))


def _grouped(chunk: str, joins: Callable[[str, str], bool]) -> list[str]:
    """Splits a text without spaces into groups of characters; combining marks stay with the
    preceding group.

    chunk: non-empty text
    joins: function of the current group and the next character; True appends the character
    """
    parts = [chunk[0]]  # a leading combining mark forms its own group
    for character in chunk[1:]:
        if unicodedata.category(character).startswith("M") or joins(parts[-1], character):
            parts[-1] += character
        else:
            parts.append(character)
    return parts


@functools.cache
def _dictionary() -> Callable[[str], Iterable[str]] | None:
    """Returns ICU's word breaker; None if icu4py is not installed."""
    try:
        from icu4py.breakers import WordBreaker
    except ImportError:
        return None
    return lambda chunk: WordBreaker(chunk, "root")


def covered(
    chunks: Sequence[int], pieces: Sequence[str], text: str, split: Split = words
) -> list[range]:
    """Returns the range of word indices, from 0, that each token covers.

    chunks: index of the space-separated chunk that each token belongs to
    pieces: subword string of each token
    text: text that the tokens encode
    split: function that splits a chunk into words
    """
    words_by_chunk = [split(chunk) for chunk in text.split()] or [[""]]
    first_words = [0, *itertools.accumulate(map(len, words_by_chunk))]
    ranges: list[range] = []  # [tokens]
    pairs = zip(chunks, pieces, strict=True)
    for chunk, group in itertools.groupby(pairs, operator.itemgetter(0)):
        pieces_of_chunk = [piece for _, piece in group]
        first = first_words[chunk]
        if len(words_by_chunk[chunk]) == 1:
            for piece in pieces_of_chunk:
                # A subword with a no-break space covers words of several chunks.
                chunks_of_piece = max(len(piece.replace(SPACE, " ").split()), 1)
                last = min(chunk + chunks_of_piece, len(words_by_chunk)) - 1
                ranges.append(range(first, first_words[last] + 1))
        else:
            places = _by_characters(pieces_of_chunk, words_by_chunk[chunk])
            ranges += [range(first + place.start, first + place.stop) for place in places]
    return ranges


def _by_characters(pieces: Sequence[str], parts: Sequence[str]) -> list[range]:
    """Returns the range of words that each subword overlaps.

    If normalisation has changed the number of characters, positions are scaled proportionally.

    pieces: subwords of a chunk of text without spaces
    parts: words of the same chunk
    """
    numbers = [i for i, part in enumerate(parts) for _ in part]  # the word index of each character
    lengths = [0 if piece == UNKNOWN else _length(piece) for piece in pieces]
    # <unk> subwords share the characters that no other subword spells.
    rest = max(1, (len(numbers) - sum(lengths)) // max(1, pieces.count(UNKNOWN)))
    lengths = [
        rest if piece == UNKNOWN else length for piece, length in zip(pieces, lengths, strict=True)
    ]
    scale = len(numbers) / max(1, sum(lengths))
    ranges = []
    position = 0
    for piece, length in zip(pieces, lengths, strict=True):
        # A continuation byte belongs to the preceding character.
        continues = is_byte(piece) and not length and position > 0
        first = min(int((position - continues) * scale), len(numbers) - 1)
        last = min(max(int((position + length) * scale) - 1, first), len(numbers) - 1)
        ranges.append(range(numbers[first], numbers[last] + 1))
        position += length
    return ranges


def with_characters(pieces: Iterable[str]) -> list[str]:
    """Returns subwords without byte tokens: the last byte token of a character becomes the
    character, and its other byte tokens become "".
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    encoded = (
        bytes([int(piece[3:5], 16)]) if is_byte(piece) else piece.encode() for piece in pieces
    )
    return [decoder.decode(data) for data in encoded]


def is_byte(piece: str) -> bool:
    """Returns whether a subword is a byte token, such as `<0x0A>` for a line feed."""
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _length(piece: str) -> int:
    """Returns the number of characters of a subword, except spaces and UTF-8 continuation bytes."""
    if is_byte(piece):
        return int(int(piece[3:5], 16) & 0xC0 != 0x80)
    return len(piece.replace(SPACE, ""))
