"""Where text comes from, parallel or labelled. A data set is one file here and one YAML in conf/data.

Read: this file, links, split, stream, text, readers, table, hub, modifiers, mix, pictures, captions, everyday, digits,
reverse.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Protocol, overload, runtime_checkable

import numpy as np

from nmt.data.modifiers import Modifier
from nmt.foundation.errors import UserError

Text = Sequence[str]
"""Lines, by index, slice and iteration: a list in memory, or an object that reads them on demand."""


Box = tuple[float, float, float, float]
"""A part of a picture: top, left, bottom, right, as shares of its height and width."""
Place = tuple[int, int, Box]
"""Which part of a picture some characters of its caption tell: begin, end, box."""


class View(Text):
    """A text that is no list: `line` gives one by its number, from 0."""

    def line(self, i: int) -> str:
        raise NotImplementedError

    def lines(self, rows: range) -> list[str]:
        return [self.line(i) for i in rows]

    @overload
    def __getitem__(self, i: int, /) -> str: ...
    @overload
    def __getitem__(self, i: slice, /) -> list[str]: ...
    def __getitem__(self, i: int | slice, /) -> str | list[str]:
        rows = range(len(self))
        return self.lines(rows[i]) if isinstance(i, slice) else self.line(rows[i])


class Selection(View):
    """Some lines of a text, by their indices."""

    def __init__(self, text: Text, indices: Sequence[int] | np.ndarray) -> None:
        self._text, self._indices = text, indices

    def __len__(self) -> int:
        return len(self._indices)

    def line(self, i: int) -> str:
        return self._text[int(self._indices[i])]


class Chain(View):
    """Several texts as one."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self._texts = texts
        self._ends = list(itertools.accumulate(map(len, texts)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def line(self, i: int) -> str:
        which = bisect.bisect_right(self._ends, i)
        return self._texts[which][i - (self._ends[which - 1] if which else 0)]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self._texts)


@dataclass(frozen=True)
class Pairs:
    """Aligned sentences: source[i] and target[i] mean the same. `name` says where they come from. A line of the source may
    have columns (nmt/tokenizer/columns.py); `links`: alignments of their words, 0-0 1-2, counted between spaces. `more_references`:
    further references, as many lists as a line has at most; a line without one has "" there. `regions`: where in the picture
    is what the words of each target tell. `content` identifies what the lines only name, such as pictures. `store`: the
    folder in which the pairs are stored, filtered already (corpus/store.py); its name identifies them.
    """

    source: Text
    target: Text
    name: str
    links: Text | None = None
    more_references: Sequence[Text] = ()
    regions: Sequence[Sequence[Place]] | None = None
    content: str = ""
    store: Path | None = None

    def __len__(self) -> int:
        return len(self.source)

    def select(self, indices: Sequence[int] | np.ndarray) -> Pairs:
        """Some of the pairs, a view."""
        links = None if self.links is None else Selection(self.links, indices)
        references = [Selection(lines, indices) for lines in self.more_references]
        regions = None if self.regions is None else [self.regions[i] for i in indices]
        return Pairs(
            Selection(self.source, indices),
            Selection(self.target, indices),
            self.name,
            links,
            references,
            regions,
            self.content,
        )


@dataclass(frozen=True)
class Stage:
    """`weights`: shares of the corpora, with sum 1; the stage ends when `passes` over the corpus `until` are done (None:
    never)."""

    name: str
    weights: Mapping[str, Fraction]
    until: str
    passes: int | None
    modifiers: Sequence[Modifier] = ()

    def __str__(self) -> str:
        parts = [f"{corpus} {float(weight):.3g}" for corpus, weight in self.weights.items()]
        return f"{self.name}: {', '.join(parts)}, until {self.until} {'inf' if self.passes is None else self.passes}"


@dataclass(frozen=True)
class Mixture:
    """The corpora and how they are mixed. `settings`: what was written, which identifies it. `tags` stand in front of source
    lines."""

    corpora: Mapping[str, Pairs]
    stages: Sequence[Stage]
    settings: str = ""
    tags: Sequence[str] = ()


def tag_of(line: str, tags: Sequence[str]) -> str:
    """The tag in front of a source line, with the space after it; "" if there is none."""
    return next((f"{tag} " for tag in tags if line.startswith(f"{tag} ")), "")


@dataclass(frozen=True)
class Splits:
    """The three parts of a data set; `test` is None if there is none. `languages` names source and target. `more_validation`: more
    validation sets, by their names. A source line holds `sources` texts, or one text and columns of values, `factors`; with
    `pictures`, the name of a picture after them. With a `mixture`, its corpora one after another are the training text."""

    train: Pairs
    validation: Pairs
    test: Pairs | None
    languages: tuple[str, str]
    more_validation: Mapping[str, Pairs] = field(default_factory=dict)
    sources: int = 1
    factors: Sequence[str] = ()
    pictures: bool = False
    mixture: Mixture | None = None


@runtime_checkable
class Data(Protocol):
    """A data set: built from its YAML's keys, loaded once. If its source lines name pictures, `pictures` is true."""

    def load(self) -> Splits:
        """Raises UserError if something is missing, misaligned or not text."""
        ...


@dataclass(frozen=True)
class Labelled:
    """Texts, each with its labels; `name` says where they come from."""

    texts: Text
    labels: list[tuple[str, ...]]
    name: str

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabelledSplits:
    """The three parts of a labelled data set. `multi_label`: a text may have any number of labels, otherwise exactly one."""

    train: Labelled
    validation: Labelled
    test: Labelled | None
    multi_label: bool


def as_list(value: str | Sequence[str]) -> list[str]:
    """One name or several as a list."""
    return [value] if isinstance(value, str) else list(value)


def check_columns(
    source: str | list[str],
    validation: str | list[str] | None,
    test: str | None,
    split: float,
    factors: list[str] | None,
) -> None:
    """Raises ValueError for keys of a data set that contradict each other."""
    if (validation is None) == (not split) or (split and test is not None):
        raise ValueError(
            "data.validation, data.split: name a validation part (and a test part, if there is one), or give a share such "
            "as data.split=0.02, which is taken from the training part for each of the two"
        )
    for key, value in (("source", source), ("validation", validation)):
        names = as_list(value or "train")
        if not names or len(set(names)) < len(names):
            raise ValueError(f"data.{key}=[{','.join(names)}]: name at least one, and each once")
    if len(as_list(source)) > 1 and factors:
        raise ValueError(
            "data.factors: belong to a single source; leave them out, or name one data.source"
        )


def unique_suffixes(paths: Sequence[str]) -> list[str]:
    """As many of the last parts of each path as tell it from the others."""
    parts = [path.strip("/").split("/") for path in paths]
    found = []
    for own in parts:
        size = next(
            (n for n in range(1, len(own)) if sum(its[-n:] == own[-n:] for its in parts) == 1),
            len(own),
        )
        found.append("/".join(own[-size:]))
    return found


def join_columns(columns: Sequence[Text]) -> Text:
    """Columns of a source as one text, with a tab between them on every line."""
    if len(columns) == 1:
        return columns[0]
    return [
        "\t".join(cell.replace("\t", " ") for cell in row) for row in zip(*columns, strict=True)
    ]


def check_values(place: str, texts: Text, values: Text, first: int = 1) -> None:
    """Raises UserError with the number of the line, after `place`, unless every line has a value for each word. `first`: the
    number of the first line."""
    for number, (text, line) in enumerate(zip(texts, values, strict=True), first):
        words, found = len(text.split()), len(line.split())
        if words != found:
            raise UserError(
                f"{place} {number:,}: {found} values, but its text has {words} words between spaces"
            )


def check_not_empty(pairs: Pairs) -> Pairs:
    """The pairs themselves; raises UserError if there are none."""
    if not len(pairs):
        raise UserError(f"{pairs.name}: no sentence pairs in it")
    return pairs
