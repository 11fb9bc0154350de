"""Texts of any length as sentences, which is what models translate; and back."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.data.documents import LONGEST_SENTENCE, sentences
from nmt.tokenizer.words import spaceless


def spans(text: str) -> list[range]:
    """Where the sentences of a text stand in it. A line break ends a sentence."""
    found, begin = list[range](), 0
    for line in text.splitlines(keepends=True):
        at = begin
        for sentence in sentences(line):
            at = text.index(sentence, at)
            found += _cut(text, range(at, at + len(sentence)))
            at += len(sentence)
        begin += len(line)
    return found


def _cut(text: str, place: range) -> list[range]:
    """A place in parts of at most LONGEST_SENTENCE characters, cut at spaces where there are any."""
    if len(place) <= LONGEST_SENTENCE:
        return [place]
    space = text.rfind(" ", place.start + 1, place.start + LONGEST_SENTENCE + 1)
    end = space if space > 0 else place.start + LONGEST_SENTENCE
    begin = end + 1 if space > 0 else end
    while begin < place.stop and text[begin].isspace():
        begin += 1
    return [range(place.start, end), *_cut(text, range(begin, place.stop))]


def joined(text: str, places: Sequence[range], translations: Sequence[str]) -> str:
    """The translations of a text's sentences, with what stands between them in the text. Where nothing does, as between
    sentences of Chinese, there is a space before a sentence whose script writes spaces."""
    written, end = [], 0
    for place, translation in zip(places, translations, strict=True):
        between = text[end : place.start]
        if end and not between and translation and not spaceless(translation[0]):
            between = " "
        written += [between, translation]
        end = place.stop
    return "".join(written) + text[end:]
