"""Splits texts into sentences for translation, and joins the translations."""

import re
from collections.abc import Iterable, Iterator, Sequence

from nmt.data.documents import LONGEST_SENTENCE, sentences
from nmt.tokenizer.words import spaceless

CUT = re.compile(
    rf"[^ ](.{{,{LONGEST_SENTENCE - 2}}}[^ ])?(?![^ ])|[^ ]{{{LONGEST_SENTENCE}}}", re.DOTALL
)
"""Regular expression for a piece of a sentence, up to LONGEST_SENTENCE characters: as many whole
words as possible, or the beginning of a longer word."""


def locate(text: str, pieces: Iterable[str], start: int = 0) -> Iterator[range]:
    """Yields the character range of each given substring in a text.

    text: text that contains the substrings
    pieces: consecutive substrings of the text
    start: position at which the first search begins
    """
    for piece in pieces:
        start = text.index(piece, start)
        yield range(start, start + len(piece))
        start += len(piece)


def spans(text: str) -> list[range]:
    """Returns the character ranges of the sentences in a text; a line break ends a sentence.

    Sentences of more than LONGEST_SENTENCE characters are cut between words.
    """
    uncut = [sentence for line in text.splitlines() for sentence in sentences(line)]
    return [
        range(*match.span())
        for sentence in locate(text, uncut)
        for match in CUT.finditer(text, sentence.start, sentence.stop)
    ]


def separator(translation: str) -> str:
    """Returns the separator to insert before a translated sentence if its source sentence follows
    the previous source sentence without a space.

    The separator is empty if the translation is empty or begins with a character of a script that
    is written without spaces. Otherwise, it is a space.
    """
    return " " if translation and not spaceless(translation[0]) else ""


def joined(text: str, places: Sequence[range], translations: Sequence[str]) -> str:
    """Joins translated sentences with the characters that stand between the source sentences.

    text: source text
    places: character range of each source sentence
    translations: translation of each sentence
    """
    written = ""
    end = 0
    for place, translation in zip(places, translations, strict=True):
        between = text[end : place.start]
        if end and not between:
            between = separator(translation)
        written += between + translation
        end = place.stop
    return written + text[end:]
