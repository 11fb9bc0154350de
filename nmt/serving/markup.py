"""Markup around translations: the tags of an HTML text stand in its translation where the words are that they belong to.

Tags of blocks cut a text into parts that are translated on their own. Within a part, each word of the translation gets the
tags of the source word that it is aligned with most.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser

from nmt.tokenizer.words import words

INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label",
    "mark", "q", "ruby", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var",
})  # fmt: skip
"""Elements that stand within a sentence; all others end it."""
VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
    ]
)
"""Elements without an end."""
WITHIN = frozenset(["img", "wbr", "input"])
"""Those of them that stand within a sentence."""
KEPT = frozenset(
    [
        "script",
        "style",
        "textarea",
        "pre",
        "code",
        "kbd",
        "samp",
        "math",
        "svg",
        "template",
        "noscript",
    ]
)
"""Elements whose content is not translated."""
_SPACES = re.compile(r"\s+")
_CORE = re.compile(r"^(\W*)(.*?)(\W*)$", re.DOTALL)


@dataclass(frozen=True)
class Element:
    """An inline element by its two tags, as they are written, and the characters of its part that it holds."""

    opening: str
    closing: str
    place: range


@dataclass
class Part:
    """A text between two blocks. `marks`: what stands before a character of it and is not translated."""

    text: str = ""
    elements: list[Element] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)

    def sentences(self, places: Sequence[range]) -> list[Part]:
        """Its sentences as parts, with the marks within them."""
        found = []
        for place in places:
            part, shift = Part(self.text[place.start : place.stop]), place.start
            for element in self.elements:
                start, stop = (
                    max(element.place.start, place.start),
                    min(element.place.stop, place.stop),
                )
                if start < stop:
                    part.elements.append(
                        Element(
                            element.opening, element.closing, range(start - shift, stop - shift)
                        )
                    )
            part.marks = [
                (at - shift, raw) for at, raw in self.marks if place.start < at < place.stop
            ]
            found.append(part)
        return found

    def between(self, begin: int, end: int) -> str:
        """What stands between two sentences, or before the first and after the last, with its marks."""
        written, at = [], begin
        for place, raw in self.marks:
            if begin <= place <= end:
                written += [html.escape(self.text[at:place], quote=False), raw]
                at = place
        return "".join(written) + html.escape(self.text[at:end], quote=False)


Block = str | Part
"""What is kept as it is, or a text to translate."""


class _Reader(HTMLParser):
    """Cuts a text into tags and what stands between them: (kind, name, as written)."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, str, str]] = []
        self._kept: list[str] = []  # the elements around this place whose content is not translated
        self._raw: list[str] = []

    def _add(self, kind: str, name: str, raw: str) -> None:
        if self._kept:
            escaped = kind == "text" and self._kept[-1] not in ("script", "style")
            self._raw.append(html.escape(raw, quote=False) if escaped else raw)
        else:
            self.found.append((kind, name, raw))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or f"<{tag}>"
        kept = tag in KEPT or ("translate", "no") in attrs
        if self._kept or (kept and tag not in VOID):
            self._kept += [] if tag in VOID else [tag]
            self._raw.append(raw)
        else:
            self._add("start", tag, raw)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add("void", tag, self.get_starttag_text() or f"<{tag}/>")

    def handle_endtag(self, tag: str) -> None:
        if self._kept:
            self._raw.append(f"</{tag}>")
            if tag in self._kept:
                while self._kept.pop() != tag:
                    pass
            if not self._kept:
                self.found.append(("kept", tag, "".join(self._raw)))
                self._raw.clear()
        else:
            self._add("end", tag, f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._add("text", "", data)

    def handle_comment(self, data: str) -> None:
        self._add("kept", "", f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._add("block", "", f"<!{decl}>")

    def unknown_decl(self, data: str) -> None:
        self._add("kept", "", f"<![{data}]]>" if data.startswith("CDATA[") else f"<![{data}]>")

    def handle_pi(self, data: str) -> None:
        self._add("block", "", f"<?{data}>")

    def all(self, text: str) -> list[tuple[str, str, str]]:
        self.feed(text)
        self.close()
        if self._raw:  # an element that never ends
            self.found.append(("kept", "", "".join(self._raw)))
        return self.found


def blocks(text: str) -> list[Block]:
    """An HTML text as parts to translate and what stands between them."""
    found: list[Block] = []
    run: list[tuple[str, str, str]] = []

    def end_run() -> None:
        if run:
            found.append(_part(run))
            run.clear()

    for kind, name, raw in _Reader().all(text):
        inside = {
            "text": True, "kept": name in INLINE | KEPT - {"script", "style", "pre", "textarea"} or raw.startswith("<!"),
            "start": name in INLINE or name in WITHIN, "end": name in INLINE, "void": name in INLINE | WITHIN,
        }.get(kind, False)  # fmt: skip
        if inside:
            run.append((kind, name, raw))
        else:
            end_run()
            found.append(raw)
    end_run()
    return found


def _part(run: Sequence[tuple[str, str, str]]) -> Part:
    """Inline tags without a partner are marks, and so are elements without words, with what is in them."""
    part, opened, pairs = Part(), list[int](), dict[int, int]()
    for i, (kind, name, _) in enumerate(run):
        if kind == "start" and name not in VOID:
            opened.append(i)
        elif kind == "end":
            partner = next((k for k in reversed(opened) if run[k][1] == name), None)
            if partner is not None:
                pairs[partner] = i
                del opened[opened.index(partner) :]
    ends = {end: begin for begin, end in pairs.items()}
    blank = not "".join(raw for kind, _, raw in run if kind == "text").strip()
    begun, order = dict[int, tuple[int, int]](), list[tuple[int, Element]]()
    for i, (kind, _, raw) in enumerate(run):
        if kind == "text":
            part.text += raw if blank else _SPACES.sub(" ", raw)
        elif i in pairs:
            begun[i] = len(part.text), len(part.marks)
        elif i in ends:
            opening, (begin, marks) = run[ends[i]][2], begun[ends[i]]
            if part.text[begin:].strip():
                order.append((ends[i], Element(opening, raw, range(begin, len(part.text)))))
            else:
                inner = "".join(mark for _, mark in part.marks[marks:])
                part.marks[marks:] = [(begin, opening + inner + raw)]
        else:
            part.marks.append((len(part.text), raw))
    part.elements = [
        element for _, element in sorted(order, key=lambda one: one[0])
    ]  # outer ones first
    return part


def marked(part: Part, translation: str, aligned: Sequence[int]) -> str:
    """A translation with the tags of its source; `aligned`: the number of the source word for each of its words."""
    source, marks = _places(part.text), _Marks(part)
    written, held, seen, end = [marks.first], tuple[int, ...](), set[int](), 0
    for place, at in zip(_places(translation), aligned, strict=True):
        own = source[at]
        cuts = [place.start + cut for cut in _cuts(translation[place.start : place.stop])]
        stacks = _stacks(part, own)
        for side, (begin, stop, stack) in enumerate(zip(cuts, cuts[1:], stacks, strict=False)):
            before = marks.take(at, side)
            if begin == stop and not before:
                continue
            shared = _common(held, () if before else stack)
            written += [
                _change(part, held, shared, seen),
                html.escape(translation[end:begin], quote=False),
                before,
            ]
            held, end = shared, begin
            if begin < stop:
                written += [
                    _change(part, held, stack, seen),
                    html.escape(translation[begin:stop], quote=False),
                ]
                held, end = stack, stop
        after = marks.take(at, 3)
        if after:
            written += [_change(part, held, (), seen), after]
            held = ()
    written += [
        _change(part, held, (), seen),
        html.escape(translation[end:], quote=False),
        marks.rest,
    ]
    written += [e.opening + e.closing for i, e in enumerate(part.elements) if i not in seen]
    return "".join(written)


class _Marks:
    """The marks of a part, by the word that each stands beside: before it, before its letters, after its letters, after it
    (0 to 3). Those at the beginning are `first`, those that were not taken in the end are the `rest`."""

    def __init__(self, part: Part) -> None:
        places, self.first = _places(part.text), ""
        self._waiting: list[tuple[tuple[int, int], str]] = []
        for at, raw in part.marks:
            word = next((k for k, place in enumerate(places) if at <= place.stop), len(places) - 1)
            if at == 0 or not places:
                self.first += raw
                continue
            place = places[word]
            side = sum(
                at - place.start >= cut for cut in _cuts(part.text[place.start : place.stop])[1:3]
            )
            side = 3 if at >= place.stop else 0 if at <= place.start else max(1, side)
            self._waiting.append(((word, side), raw))

    def take(self, word: int, side: int) -> str:
        """The marks at a place, once."""
        found = "".join(raw for where, raw in self._waiting if where == (word, side))
        self._waiting = [one for one in self._waiting if one[0] != (word, side)]
        return found

    @property
    def rest(self) -> str:
        return "".join(raw for _, raw in self._waiting)


def _cuts(word: str) -> list[int]:
    """Where the punctuation before a word, its letters and the punctuation after it begin, and where that ends."""
    match = _CORE.match(word)
    assert match is not None
    return [0, match.start(2), match.start(3), len(word)]


def _stacks(part: Part, word: range) -> list[tuple[int, ...]]:
    """The elements around the punctuation before a word, its letters and the punctuation after it; the letters' where there
    is no punctuation."""
    _, letters, after, end = (word.start + cut for cut in _cuts(part.text[word.start : word.stop]))
    inner = _stack(part, letters if letters < after else word.start)
    return [
        _stack(part, word.start) if letters > word.start else inner,
        inner,
        _stack(part, after) if after < end else inner,
    ]


def _stack(part: Part, at: int) -> tuple[int, ...]:
    return tuple(i for i, element in enumerate(part.elements) if at in element.place)


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    size = next(
        (k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    return a[:size]


def _change(part: Part, held: tuple[int, ...], wanted: tuple[int, ...], seen: set[int]) -> str:
    """The tags that lead from within some elements to within others."""
    shared = _common(held, wanted)
    seen.update(wanted)
    ending = "".join(part.elements[i].closing for i in reversed(held[len(shared) :]))
    return ending + "".join(part.elements[i].opening for i in wanted[len(shared) :])


def _places(text: str) -> list[range]:
    """Where the words of a text stand."""
    found, at = [], 0
    for word in words(text):
        at = text.index(word, at)
        found.append(range(at, at + len(word)))
        at += len(word)
    return found
