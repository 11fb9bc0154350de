"""Texts of any length as sentences, which models translate, and back."""

from collections.abc import Iterable, Iterator, Sequence

from nmt.data.documents import LONGEST_SENTENCE, sentences
from nmt.tokenizer.words import spaceless


def locate(text: str, pieces: Iterable[str], start: int = 0) -> Iterator[range]:
    """Places of consecutive pieces of a text in it."""
    for piece in pieces:
        start = text.index(piece, start)
        yield range(start, start + len(piece))
        start += len(piece)


def spans(text: str) -> list[range]:
    """Places of the sentences of a text. A line break ends a sentence."""
    uncut = [sentence for line in text.splitlines() for sentence in sentences(line)]
    return [place for sentence in locate(text, uncut) for place in _cut(text, sentence)]


def _cut(text: str, place: range) -> list[range]:
    """Parts of a place of at most LONGEST_SENTENCE characters, cut at spaces where there are
    any."""
    if len(place) <= LONGEST_SENTENCE:
        return [place]
    # The last space that keeps the limit; without any, the limit.
    space = text.rfind(" ", place.start + 1, place.start + LONGEST_SENTENCE + 1)
    end = space if space > 0 else place.start + LONGEST_SENTENCE
    rest = text[end : place.stop]
    start = place.stop - len(rest.lstrip())
    return [range(place.start, end), *_cut(text, range(start, place.stop))]


def separator(translation: str) -> str:
    """Space between two sentences without one in the source, as in Chinese: none before scripts
    that write no spaces."""
    return " " if translation and not spaceless(translation[0]) else ""


def joined(text: str, places: Sequence[range], translations: Sequence[str]) -> str:
    """Translations of the sentences of a text, with the characters between these in the text."""
    written = ""
    end = 0
    for place, translation in zip(places, translations, strict=True):
        between = text[end : place.start]
        if end and not between:
            between = separator(translation)
        written += between + translation
        end = place.stop
    return written + text[end:]
