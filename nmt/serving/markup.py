"""HTML texts: their parts to translate, and the tags of a part projected onto its translation.

Tags of blocks cut a text into parts that are translated separately. Within a part, each word of the translation gets the
tags of the source word that it is aligned with.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from itertools import chain, takewhile
from typing import Literal

from nmt.serving.passages import locate, separator
from nmt.tokenizer.words import words

INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label",
    "mark", "q", "ruby", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var",
})  # fmt: skip
"""Elements within a sentence; all others end it."""
VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
"""Elements without an end tag."""
INLINE_VOID = frozenset({"img", "wbr", "input"})
"""Elements without an end tag within a sentence."""
RAW_TEXT = frozenset({"script", "style"})
"""Elements in which no character is escaped."""
INLINE_UNTRANSLATED = frozenset({"code", "kbd", "samp", "math", "svg", "template", "noscript"})
"""Elements within a sentence with untranslated content."""
UNTRANSLATED = INLINE_UNTRANSLATED | RAW_TEXT | {"textarea", "pre"}
"""Elements with untranslated content."""
_SIDES = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)
"""Punctuation before a word, its letters, and the punctuation after it."""


@dataclass(frozen=True)
class Span:
    """Markup at the characters `start` to `stop` of a part.

    An element has words: its tags are `opening` and `closing`. A mark has `start` = `stop` and no closing tag: an image, an
    untranslated or empty element, a comment, a tag without a partner.
    """

    opening: str
    closing: str
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """Text between two tags of blocks, without its markup, and the spans of that markup, outer ones first."""

    text: str
    spans: tuple[Span, ...] = ()

    @property
    def elements(self) -> list[Span]:
        return [span for span in self.spans if span.start < span.stop]

    def marks(self, start: int, stop: int) -> list[Span]:
        """Marks from one position to another, both included."""
        return [span for span in self.spans if start <= span.start == span.stop <= stop]

    def around(self, start: int, stop: int) -> tuple[Span, ...]:
        """Elements that contain these characters."""
        return tuple(
            element for element in self.elements if element.start <= start and stop <= element.stop
        )


@dataclass(frozen=True)
class AlignedSentence:
    """A translated sentence of a part.

    place: characters of the sentence in the part
    translation: its translation
    source_words: for each word of the translation, the number of the aligned word of the sentence
    """

    place: range
    translation: str
    source_words: Sequence[int]


@dataclass(frozen=True)
class _Token:
    kind: Literal["text", "start", "end", "mark"]
    name: str
    html: str


class _Reader(HTMLParser):
    """Cuts a text into `blocks`: parts to translate, and HTML between them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str | Part] = []
        self._tokens: list[_Token] = []  # of the current part
        self._untranslated: list[str] = []  # names of the open elements from an untranslated one on
        self._untranslated_html = ""

    def _add(self, token: _Token, *, inline: bool) -> None:
        if self._untranslated:
            self._untranslated_html += token.html
        elif inline:
            self._tokens.append(token)
        else:
            self.end_part()
            self.blocks.append(token.html)

    def end_part(self) -> None:
        if self._tokens:
            self.blocks.append(_part(self._tokens))
            self._tokens = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        tag_html = self.get_starttag_text() or f"<{tag}>"
        untranslated = tag in UNTRANSLATED or ("translate", "no") in attrs
        if tag in VOID:
            self._add(_Token("mark", tag, tag_html), inline=tag in INLINE_VOID)
        elif self._untranslated or untranslated:
            self._untranslated.append(tag)
            self._untranslated_html += tag_html
        else:
            self._add(_Token("start", tag, tag_html), inline=tag in INLINE)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        token = _Token("mark", tag, self.get_starttag_text() or f"<{tag}/>")
        self._add(token, inline=tag in INLINE | INLINE_VOID)

    def handle_endtag(self, tag: str) -> None:
        self._add(_Token("end", tag, f"</{tag}>"), inline=tag in INLINE)
        if tag in self._untranslated:
            while self._untranslated.pop() != tag:
                pass
            if not self._untranslated:
                self.end_untranslated(tag)

    def end_untranslated(self, tag: str) -> None:
        if self._untranslated_html:
            token = _Token("mark", tag, self._untranslated_html)
            self._untranslated = []
            self._untranslated_html = ""
            self._add(token, inline=tag in INLINE | INLINE_UNTRANSLATED)

    def handle_data(self, data: str) -> None:
        if self._untranslated and self._untranslated[-1] not in RAW_TEXT:
            data = html.escape(data, quote=False)
        self._add(_Token("text", "", data), inline=True)

    def handle_comment(self, data: str) -> None:
        self._add(_Token("mark", "", f"<!--{data}-->"), inline=True)

    def handle_decl(self, decl: str) -> None:
        self._add(_Token("mark", "", f"<!{decl}>"), inline=False)

    def unknown_decl(self, data: str) -> None:
        end = "]]>" if data.startswith("CDATA[") else "]>"
        self._add(_Token("mark", "", f"<![{data}{end}"), inline=True)

    def handle_pi(self, data: str) -> None:
        self._add(_Token("mark", "", f"<?{data}>"), inline=False)


def blocks(text: str) -> list[str | Part]:
    """Parts of an HTML text to translate, and the HTML between them."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    reader.end_untranslated("")  # an element without its end tag
    reader.end_part()
    return reader.blocks


def _part(tokens: Sequence[_Token]) -> Part:
    """Text and spans of a part. A start tag without its end tag is a mark, and so is an element without words."""
    is_blank = not "".join(token.html for token in tokens if token.kind == "text").strip()
    text = ""
    spans: dict[int, Span] = {}  # by the number of the token that begins it
    open_tags: dict[int, int] = {}  # positions in the text, by the number of the start tag
    for number, token in enumerate(tokens):
        same_name = (i for i in reversed(open_tags) if tokens[i].name == token.name)
        partner = next(same_name, None) if token.kind == "end" else None
        if token.kind == "text":
            added = token.html if is_blank else re.sub(r"\s+", " ", token.html)
            if text.endswith(" ") and not is_blank and added.startswith(" "):
                added = added[1:]
                last = max(spans, default=-1)
                if last >= 0 and spans[last].start == len(text):
                    # A mark between two spaces moves with one of them.
                    spans[last] = replace(spans[last], opening=spans[last].opening + " ")
            text += added
        elif token.kind == "start":
            open_tags[number] = len(text)
        elif partner is None:
            spans[number] = Span(token.html, "", len(text), len(text))
        else:
            start = open_tags.pop(partner)
            spans[partner] = Span(tokens[partner].html, token.html, start, len(text))
            if not text[start:].strip():
                inner = "".join(spans.pop(i).opening for i in sorted(spans) if i > partner)
                opening = tokens[partner].html + inner + token.html
                spans[partner] = Span(opening, "", start, start)
    for number, start in open_tags.items():
        spans[number] = Span(tokens[number].html, "", start, start)
    return Part(text, tuple(spans[number] for number in sorted(spans)))


@dataclass(frozen=True)
class _Segment:
    """HTML in a translation, and the elements around it, outer ones first."""

    html: str
    elements: tuple[Span, ...] = ()


def with_tags(part: Part, sentences: Sequence[AlignedSentence]) -> str:
    """HTML of the translation of a part."""
    segments: list[_Segment] = []
    end = 0
    for sentence in sentences:
        between = _source_segments(part, end, sentence.place.start)
        if end and not between:
            between = [_Segment(separator(sentence.translation))]
        segments += [*between, *_translated_segments(part, sentence)]
        end = sentence.place.stop
    segments += _source_segments(part, end, len(part.text))
    return _joined(segments, part.elements)


def _source_segments(part: Part, start: int, stop: int) -> list[_Segment]:
    """Characters and marks of the source, as they are."""
    segments = []
    position = start
    for mark in [*part.marks(start, stop), Span("", "", stop, stop)]:
        if position < mark.start:
            text = html.escape(part.text[position : mark.start], quote=False)
            segments.append(_Segment(text, part.around(position, mark.start)))
        segments += [_mark_segment(part, mark)] if mark.opening else []
        position = mark.start
    return segments


def _mark_segment(part: Part, mark: Span) -> _Segment:
    return _Segment(mark.opening, part.around(mark.start - 1, mark.start + 1))


def _translated_segments(part: Part, sentence: AlignedSentence) -> list[_Segment]:
    """Words of a translation, each side of a word within the elements around that side of its source word. A mark stands
    beside the translation of the word that it stood beside, or ends the sentence if that word has no translation."""
    source = _word_sides(part.text, sentence.place)
    marks = _marks_beside(part, sentence.place, source)
    translation = sentence.translation
    segments = []
    end = 0
    target = _word_sides(translation, range(len(translation)))
    for sides, number in zip(target, sentence.source_words, strict=True):
        leading, letters, _ = source[number]
        within = letters.start if letters else leading.start
        word = []
        for k, side in enumerate(sides):
            word += marks.pop((number, k, False), [])
            if side:
                start = source[number][k].start if source[number][k] else within
                text = html.escape(translation[side.start : side.stop], quote=False)
                word.append(_Segment(text, part.around(start, start + 1)))
            word += marks.pop((number, k, True), [])
        space = translation[end : sides[0].start]
        segments += [replace(word[0], html=space + word[0].html), *word[1:]]
        end = sides[2].stop
    return [*segments, *chain(*marks.values()), _Segment(translation[end:])]


def _marks_beside(
    part: Part, place: range, source: Sequence[Sequence[range]]
) -> dict[tuple[int, int, bool], list[_Segment]]:
    """Marks within a sentence, by the number of a word, its side, and whether they stand after that."""
    marks: dict[tuple[int, int, bool], list[_Segment]] = {}
    for mark in part.marks(place.start + 1, place.stop - 1):
        beside = next(
            (number, k, mark.start == side.stop)
            for number, sides in enumerate(source)
            for k, side in enumerate(sides)
            if mark.start <= side.stop
        )
        marks.setdefault(beside, []).append(_mark_segment(part, mark))
    return marks


def _word_sides(text: str, place: range) -> list[list[range]]:
    """Places of the punctuation before each word, of its letters, and of the punctuation after them; empty without."""
    sides = []
    for word in locate(text, words(text[place.start : place.stop]), place.start):
        match = _SIDES.fullmatch(text, word.start, word.stop)
        assert match is not None
        sides.append([range(*match.span(group)) for group in (1, 2, 3)])
    return sides


def _joined(segments: Iterable[_Segment], elements: Iterable[Span]) -> str:
    """Segments with the tags of their elements. Elements without a segment are empty at the end."""
    written = ""
    open_elements: tuple[Span, ...] = ()
    empty = dict.fromkeys(elements)
    for segment in [*segments, _Segment("")]:
        pairs = zip(open_elements, segment.elements, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        content = segment.html.lstrip()
        written += "".join(element.closing for element in reversed(open_elements[shared:]))
        written += segment.html[: len(segment.html) - len(content)]
        written += "".join(element.opening for element in segment.elements[shared:])
        written += content
        open_elements = segment.elements
        for element in segment.elements:
            empty.pop(element, None)
    return written + "".join(element.opening + element.closing for element in empty)
