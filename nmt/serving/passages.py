"""Splits texts into sentences for translation, and joins the translations."""

from collections.abc import Iterable, Iterator, Sequence

from nmt.data.documents import LONGEST_SENTENCE, sentences
from nmt.tokenizer.words import spaceless


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
    """Returns the character ranges of the sentences in a text; a line break ends a sentence."""
    uncut = [sentence for line in text.splitlines() for sentence in sentences(line)]
    return [place for sentence in locate(text, uncut) for place in _cut(text, sentence)]


def _cut(text: str, place: range) -> list[range]:
    """Splits a character range at spaces into ranges of at most LONGEST_SENTENCE characters.

    Text without spaces is cut at the limit.
    """
    if len(place) <= LONGEST_SENTENCE:
        return [place]
    # Cut at the last space within the limit, or at the limit.
    space = text.rfind(" ", place.start + 1, place.start + LONGEST_SENTENCE + 1)
    end = space if space > 0 else place.start + LONGEST_SENTENCE
    rest = text[end : place.stop]
    start = place.stop - len(rest.lstrip())
    return [range(place.start, end), *_cut(text, range(start, place.stop))]


def separator(translation: str) -> str:
    """Returns the separator before a translation if no space separates the source sentences.

    The separator is a space, or empty before a script that is written without spaces.
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
