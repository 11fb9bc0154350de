"""Parallel and labelled text: values, sources, file formats, filters, encoding and batches.

A data set is one file in sources/ and one YAML in conf/data. A format is one file in formats/.

Read: this file, lines, links, formats, pair_columns, parts, sources, the rest in any order.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.modifiers import Modifier

Text = Sequence[str]
"""Lines of text: a list in memory, or an object that reads them on demand."""
Box = tuple[float, float, float, float]
"""Region of a picture: top, left, bottom, right, as fractions of its height and width."""
Region = tuple[int, int, Box]
"""First character of a part of a caption, the one after its last, and the region it describes."""


class View(Text):
    """Base of texts that are not lists. Subclasses define `__len__` and `line`."""

    def line(self, i: int) -> str:
        """Line `i`, counted from 0."""
        raise NotImplementedError

    def lines(self, rows: range) -> list[str]:
        """The lines of a slice."""
        return [self.line(i) for i in rows]

    def __getitem__(self, i: Any, /) -> Any:
        rows = range(len(self))  # handles negative numbers, and slices with any step
        return self.lines(rows[i]) if isinstance(i, slice) else self.line(rows[i])


class Selection(View):
    """Lines of a text, by their indices."""

    def __init__(self, text: Text, indices: Sequence[int] | np.ndarray) -> None:
        self._text = text
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def line(self, i: int) -> str:
        return self._text[int(self._indices[i])]


class Chain(View):
    """Several texts as one, without a copy."""

    def __init__(self, texts: Sequence[Text]) -> None:
        self._texts = texts
        self._starts = [0, *itertools.accumulate(map(len, texts))]

    def __len__(self) -> int:
        return self._starts[-1]

    def line(self, i: int) -> str:
        k = bisect.bisect_right(self._starts, i) - 1  # the text that contains line i
        return self._texts[k][i - self._starts[k]]

    def __iter__(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self._texts)


@dataclass(frozen=True)
class Pairs:
    """Aligned sentences: source[i] and target[i] have the same meaning.

    source: lines of the source, which may have columns (nmt/tokenizer/columns.py).
    target: lines of the target.
    name: origin of the pairs, for messages.
    links: word alignments such as 0-0 1-2; words are separated by spaces.
    more_references: second, third … references of all lines; "" where a line has fewer.
    regions: for each pair, the regions of the picture that words of the target describe.
    content: identity of pictures, which the lines only name.
    store: folder in which the pairs are stored after filtering (nmt/data/store.py); its name
        identifies them.
    """

    source: Text
    target: Text
    name: str
    links: Text | None = None
    more_references: Sequence[Text] = ()
    regions: Sequence[Sequence[Region]] | None = None
    content: str = ""
    store: Path | None = None

    def __len__(self) -> int:
        return len(self.source)

    @property
    def columns(self) -> dict[str, Text]:
        """The texts by name: source, target, and links if there are any."""
        # The order is part of the fingerprint of a run.
        columns = {"source": self.source, "target": self.target, "links": self.links}
        return {name: text for name, text in columns.items() if text is not None}

    def select(self, indices: Sequence[int] | np.ndarray) -> Pairs:
        """A view of the pairs with these indices."""
        return replace(
            self,
            source=Selection(self.source, indices),
            target=Selection(self.target, indices),
            links=None if self.links is None else Selection(self.links, indices),
            more_references=[Selection(lines, indices) for lines in self.more_references],
            regions=None if self.regions is None else [self.regions[i] for i in indices],
            store=None,  # its name identifies all pairs, not some of them
        )


def chained(parts: Sequence[Pairs], name: str) -> Pairs:
    """Several corpora as one, without a copy."""
    source = Chain([part.source for part in parts])
    return Pairs(source, Chain([part.target for part in parts]), name)


@dataclass(frozen=True)
class Stage:
    """A stage of a mixture: its corpora and its end.

    name: name of the stage.
    weights: share of each corpus; the sum is 1.
    until: corpus whose passes are counted.
    passes: passes over that corpus after which the stage ends; None: it never ends.
    modifiers: changes to the sentence pairs, in order.
    """

    name: str
    weights: Mapping[str, Fraction]
    until: str
    passes: int | None
    modifiers: Sequence[Modifier] = ()

    def __str__(self) -> str:
        shares = [f"{corpus} {float(weight):.3g}" for corpus, weight in self.weights.items()]
        passes = "inf" if self.passes is None else self.passes  # as in the file
        return f"{self.name}: {', '.join(shares)}, until {self.until} {passes}"


@dataclass(frozen=True)
class Mixture:
    """Corpora, and the stages in which they are mixed.

    corpora: sentence pairs by the name of the corpus.
    stages: stages in order.
    settings: text of the file that describes the mixture, part of the data's identity.
    tags: texts in front of the source lines of some corpora.
    """

    corpora: Mapping[str, Pairs]
    stages: Sequence[Stage]
    settings: str = ""
    tags: Sequence[str] = ()


def tag_of(line: str, tags: Sequence[str]) -> str:
    """The tag in front of a source line with the space after it; "" if the line has none."""
    return next((f"{tag} " for tag in tags if line.startswith(f"{tag} ")), "")


@dataclass(frozen=True)
class Splits:
    """The parts of a data set for translation.

    train, validation, test: sentence pairs; `test` is optional.
    languages: source and target.
    more_validation: further validation sets by name.
    sources: number of texts in a source line; several are separated by tabs.
    factors: names of the columns with a value for each word, after the text.
    pictures: whether the last column of a source line is the name of a picture.
    mixture: mixture whose corpora in order are the training text, or None.
    """

    train: Pairs
    validation: Pairs
    test: Pairs | None
    languages: tuple[str, str]
    more_validation: Mapping[str, Pairs] = field(default_factory=dict)
    sources: int = 1
    factors: Sequence[str] = ()
    pictures: bool = False
    mixture: Mixture | None = None


@dataclass(frozen=True)
class Labelled:
    """Texts with their labels.

    texts: lines of text.
    labels: the labels of each text.
    name: origin of the texts, for messages.
    multi_label: whether a text has any number of labels, not exactly one.
    """

    texts: Text
    labels: list[tuple[str, ...]]
    name: str
    multi_label: bool = False

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabelledSplits:
    """The parts of a data set for classification; `test` is optional.

    multi_label: whether a text of the training part has any number of labels, not exactly one.
    """

    train: Labelled
    validation: Labelled
    test: Labelled | None
    multi_label: bool


def as_list(names: str | int | Sequence[str | int] | None) -> list[str]:
    """One name or several as a list of texts; None is the empty list."""
    return [str(names)] if isinstance(names, str | int) else [str(name) for name in names or ()]


def unique_suffixes(paths: Sequence[str]) -> list[str]:
    """The last parts of each path, as few as distinguish it from the other paths."""
    split_paths = [path.strip("/").split("/") for path in paths]
    suffixes = []
    for parts in split_paths:
        size = 1
        while size < len(parts) and [p[-size:] for p in split_paths].count(parts[-size:]) > 1:
            size += 1
        suffixes.append("/".join(parts[-size:]))
    return suffixes
