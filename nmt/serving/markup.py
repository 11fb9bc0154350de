"""Translation of HTML: division of a text into parts, and transfer of tags to the translation.

Block tags divide a text into parts, which are translated separately. Within a part, each word of
the translation gets the tags of its aligned source word.
"""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby, takewhile
from typing import Literal

from nmt.serving.passages import locate, separator, spans
from nmt.tokenizer.words import MARKS, words

RAW_TEXT = frozenset({"script", "style", "textarea"})
"""Names of HTML elements whose content is plain text, in which `<` does not begin a tag."""
UNTRANSLATED = RAW_TEXT | {"pre", "code", "kbd", "samp", "math", "svg", "template", "noscript"}
"""Names of HTML elements whose content is not translated."""
INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em",
    "font", "i", "img", "input", "ins", "kbd", "label", "mark", "math", "noscript", "q", "ruby",
    "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "svg", "template", "time",
    "tt", "u", "var", "wbr",
})  # fmt: skip
"""Names of HTML elements that may be inside a sentence; other elements end a sentence."""
VOID = frozenset({
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
})  # fmt: skip
"""Names of HTML elements without an end tag."""
_TAG = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[.*?(?:\]>|\Z)|<[!?][^>]*(?:>|\Z)"
    r"|<(?P<end>/?)(?P<name>[a-z][^\s/<>]*)(?:[^<>\"']|\"[^\"]*\"|'[^']*')*+>",
    re.DOTALL | re.IGNORECASE,
)
"""Regular expression for HTML comments, declarations and tags."""
_NOT_TRANSLATED = re.compile(
    r"(?:[^\"']|\"[^\"]*\"|'[^']*')*?\stranslate\s*=\s*[\"']?no\b", re.IGNORECASE
)
"""Regular expression for the beginning of a tag up to the attribute translate=no, which is not part
of the quoted value of another attribute."""
_SIDES = re.compile(rf"([^\w{MARKS}]*)(.*?)([^\w{MARKS}]*)()", re.DOTALL)
"""Regular expression for a word, with four groups: leading punctuation, letters, trailing
punctuation, and the empty string at the end."""


@dataclass(frozen=True)
class Span:
    """Markup at the characters `start` to `stop` of a part: an element or a mark.

    An element contains words and has the tags `opening` and `closing`. A mark has `start` = `stop`
    and no `closing`. Marks are images, untranslated or empty elements, comments and unpaired tags.
    """

    opening: str
    closing: str
    start: int
    stop: int


@dataclass(frozen=True)
class Part:
    """Text between two block tags, separated from its inline markup.

    text: text without markup
    spans: markup with its positions in the text, outer elements first
    """

    text: str
    spans: tuple[Span, ...] = ()

    @cached_property
    def places(self) -> list[range]:
        """Character range of each sentence in the text."""
        return spans(self.text)

    @cached_property
    def sentences(self) -> list[str]:
        return [self.text[place.start : place.stop] for place in self.places]

    @cached_property
    def elements(self) -> list[Span]:
        return [span for span in self.spans if span.start < span.stop]

    def marks(self, start: int, stop: int) -> list[Span]:
        """Returns the marks (images, comments, empty elements, unpaired tags) from position `start`
        to `stop`, both included."""
        return [span for span in self.spans if start <= span.start == span.stop <= stop]

    def around(self, start: int, stop: int) -> tuple[Span, ...]:
        """Returns the elements that contain the characters from `start` to `stop`."""
        return tuple(
            element for element in self.elements if element.start <= start and stop <= element.stop
        )


@dataclass(frozen=True)
class AlignedSentence:
    """A translated sentence with its word alignment.

    place: character range of the sentence in the text of its `Part`
    translation: translation of the sentence
    source_words: index of the aligned source word for each word of the translation
    """

    place: range
    translation: str
    source_words: Sequence[int]


@dataclass(frozen=True)
class _Token:
    """Token of an HTML text.

    kind: text, start tag, end tag, or other markup (mark)
    html: source code of the token
    name: name of the element in lower case
    is_inline: whether the token may be inside a sentence
    """

    kind: Literal["text", "start", "end", "mark"]
    html: str
    name: str = ""
    is_inline: bool = True


def blocks(text: str) -> list[str | Part]:
    """Returns the translatable parts of an HTML text and, as strings, the HTML between them."""
    cut: list[str | Part] = []
    for is_inline, group in groupby(_tokens(text), key=lambda token: token.is_inline):
        tokens = list(group)
        texts = [html.unescape(token.html) for token in tokens if token.kind == "text"]
        has_words = is_inline and "".join(texts).strip()
        cut.append(_part(tokens) if has_words else "".join(token.html for token in tokens))
    return cut


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while match := _TAG.search(text, position):
        if position < match.start():
            yield _Token("text", text[position : match.start()])
        token = _tag(match)
        position = match.start() + len(token.html)
        yield token
    if position < len(text):
        yield _Token("text", text[position:])


def _tag(match: re.Match[str]) -> _Token:
    """Returns the token for an HTML tag or comment. An element that is not translated becomes a
    single token of the kind `mark`, together with its content."""
    name = (match["name"] or "").lower()
    if not name:
        return _Token("mark", match[0], is_inline=match[0].startswith(("<!--", "<![")))
    is_inline = name in INLINE
    if match["end"]:
        return _Token("end", match[0], name, is_inline)
    if name in VOID or match[0].endswith("/>"):
        return _Token("mark", match[0], name, is_inline)
    if name in UNTRANSLATED or _NOT_TRANSLATED.match(match[0]):
        return _Token("mark", _element(match, name), name, is_inline)
    return _Token("start", match[0], name, is_inline)


def _element(start_tag: re.Match[str], name: str) -> str:
    """Returns an element with its content, up to the end of the text if it has no end tag."""
    text = start_tag.string
    tags = re.compile(rf"<(/?){re.escape(name)}\b[^<>]*(?<!/)>", re.IGNORECASE)
    # Elements of the same name may be nested, except raw text elements.
    depth = 1  # number of open elements with this name, including the start tag
    for tag in tags.finditer(text, start_tag.end()):
        depth += -1 if tag[1] else name not in RAW_TEXT
        if depth == 0:
            return text[start_tag.start() : tag.end()]
    return text[start_tag.start() :]


def _part(tokens: Sequence[_Token]) -> Part:
    """Converts the HTML tokens between two block tags to a text and the spans of its inline markup.

    Start tags without an end tag, and elements without words, become marks: spans that have a
    position but contain no text.
    """
    text = ""
    spans: dict[int, Span] = {}  # spans, by the index of their first token
    open_tags: dict[int, int] = {}  # text positions of open start tags, by token index
    for number, token in enumerate(tokens):
        # An end tag closes the innermost element of its name, also if elements overlap.
        same_name = (i for i in reversed(open_tags) if tokens[i].name == token.name)
        partner = next(same_name, None) if token.kind == "end" else None
        if token.kind == "text":
            added = re.sub(r"\s+", " ", html.unescape(token.html))
            last = max(spans, default=0)
            if text.endswith(" ") and added.startswith(" "):
                added = added[1:]
                if last in spans and spans[last].start == len(text):
                    # A mark between two spaces keeps one of the spaces.
                    spans[last] = replace(spans[last], opening=spans[last].opening + " ")
            text += added
        elif token.kind == "start":
            open_tags[number] = len(text)
        elif partner is None:
            spans[number] = Span(token.html, "", len(text), len(text))
        else:
            start = open_tags.pop(partner)
            spans[partner] = Span(tokens[partner].html, token.html, start, len(text))
            # An element without words becomes one mark, together with the marks inside.
            if not text[start:].strip():
                inner = "".join(spans.pop(i).opening for i in sorted(spans) if i > partner)
                opening = tokens[partner].html + inner + token.html
                spans[partner] = Span(opening, "", start, start)
    for number, start in open_tags.items():
        spans[number] = Span(tokens[number].html, "", start, start)
    return Part(text, tuple(spans[number] for number in sorted(spans)))


@dataclass(frozen=True)
class _Segment:
    """Segment of a translation as HTML.

    html: text or a mark
    elements: elements that contain the segment, outer elements first
    """

    html: str
    elements: tuple[Span, ...] = ()


def with_tags(part: Part, sentences: Sequence[AlignedSentence]) -> str:
    """Returns the translation of a part as HTML."""
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
    """Returns the segments of a source text between two positions: escaped text, and marks such as
    images, comments and unpaired tags."""
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
    # Only elements with text on both sides contain the mark.
    return _Segment(mark.opening, part.around(mark.start - 1, mark.start + 1))


def _translated_segments(part: Part, sentence: AlignedSentence) -> list[_Segment]:
    """Returns the segments of a translated sentence, with the elements of the aligned source words.

    The letters of a word get the elements of the letters of its aligned source word; the
    punctuation of a word gets the elements of the punctuation of this source word. A mark at a
    source word is placed at the translation of this word. If the word is not translated, the mark
    is placed at the end of the sentence.
    """
    source = _word_sides(part.text, sentence.place)
    # marks by (source word, side of the word after the mark)
    marks: dict[tuple[int, int], list[_Segment]] = {}
    for mark in part.marks(sentence.place.start + 1, sentence.place.stop - 1):
        place_of_mark = next(
            (number, k)
            for number, sides in enumerate(source)
            for k, side in enumerate(sides)
            if mark.start <= side.start
        )
        marks.setdefault(place_of_mark, []).append(_mark_segment(part, mark))
    translation = sentence.translation
    segments = []
    end = 0
    target = _word_sides(translation, range(len(translation)))
    for sides, number in zip(target, sentence.source_words, strict=True):
        # Punctuation without a source counterpart gets the elements of the letters, if any.
        within = source[number][1] or source[number][0]
        word = []
        for k, side in enumerate(sides):
            word += marks.pop((number, k), [])
            if side:
                start = (source[number][k] or within).start
                text = html.escape(translation[side.start : side.stop], quote=False)
                word.append(_Segment(text, part.around(start, start + 1)))
        # Spaces between words are written after end tags and before start tags.
        space = translation[end : sides[0].start]
        segments += [replace(word[0], html=space + word[0].html), *word[1:]]
        end = sides[-1].stop
    return [*segments, *chain(*marks.values()), _Segment(translation[end:])]


def _word_sides(text: str, place: range) -> list[list[range]]:
    """Returns four character ranges for each word in a part of a text.

    The ranges cover the leading punctuation, the letters, the trailing punctuation, and the empty
    string at the end of the word.
    """
    sides = []
    for word in locate(text, words(text[place.start : place.stop]), place.start):
        match = _SIDES.fullmatch(text, word.start, word.stop)
        assert match is not None
        sides.append([range(*match.span(group)) for group in (1, 2, 3, 4)])
    return sides


def _joined(segments: Sequence[_Segment], elements: Sequence[Span]) -> str:
    """Returns the HTML of all segments with the tags of their elements.

    Elements without a segment are written at the end, without content.
    """
    written = ""
    open_elements: tuple[Span, ...] = ()
    # The additional empty segment closes all elements.
    for segment in [*segments, _Segment("")]:
        pairs = zip(open_elements, segment.elements, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        content = segment.html.lstrip()
        written += "".join(element.closing for element in reversed(open_elements[shared:]))
        written += segment.html[: len(segment.html) - len(content)]
        written += "".join(element.opening for element in segment.elements[shared:])
        written += content
        open_elements = segment.elements
    used = {element for segment in segments for element in segment.elements}
    empty = [element for element in elements if element not in used]
    return written + "".join(element.opening + element.closing for element in empty)
