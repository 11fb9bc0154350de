"""Data sets of parallel and labelled text: types, sources, file formats, filters, encoding and
batching.

A new data source is one file in sources/ and one YAML file in conf/data. A new table format is one
file in formats/.

Modules in reading order: this file, lazy_text, lines, links, formats, pair_columns, streams, parts,
sources, then the others in any order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from nmt.data.lazy_text import Chain, Selection, Text
from nmt.data.modifiers import Modifier

Box = tuple[float, float, float, float]
"""Image region as (top, left, bottom, right), in fractions of the image height and width."""
Region = tuple[int, int, Box]
"""Span of a caption and the image region that it describes: (index of the first character, index
after the last character, image region)."""


@dataclass(frozen=True)
class Pairs:
    """Parallel sentences: source[i] and target[i] are translations of each other.

    source: source lines; several texts, factors or an image name in a line are separated by tabs
    target: target lines
    name: origin of the pairs, for messages
    links: word alignment of each pair, such as 0-0 1-2, with space-separated words counted from 0;
        None without alignments
    more_references: one list of lines for the second references, one for the third, and so on; ""
        if a pair has fewer references
    regions: image regions described by target words, for each pair
    content: digest of the images that the source lines name; "" without images
    store: folder on disk that contains the filtered pairs, and the digest of the pairs before
        filtering (nmt/data/store.py); None for pairs in memory
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
        """Lines of each column by column name: source, target and, if available, links."""
        # The column order is part of the run's data fingerprint.
        columns = {"source": self.source, "target": self.target, "links": self.links}
        return {name: text for name, text in columns.items() if text is not None}

    def select(self, indices: Sequence[int] | np.ndarray) -> "Pairs":
        """Returns a view of the pairs with the given indices."""
        return replace(
            self,
            source=Selection(self.source, indices),
            target=Selection(self.target, indices),
            links=None if self.links is None else Selection(self.links, indices),
            more_references=[Selection(lines, indices) for lines in self.more_references],
            regions=None if self.regions is None else [self.regions[i] for i in indices],
            # A selection has no store, since a store contains the complete set of pairs.
            store=None,
        )


def chained(parts: Sequence[Pairs], name: str) -> Pairs:
    """Returns a view of several corpora as one corpus, without copying."""
    return Pairs(
        source=Chain([part.source for part in parts]),
        target=Chain([part.target for part in parts]),
        name=name,
    )


@dataclass(frozen=True)
class Stage:
    """Stage of a data mixture: corpus weights and end condition.

    name: name of the stage
    weights: fraction of pairs from each corpus; the sum is 1
    until: corpus whose passes determine the end of the stage
    passes: number of passes over the corpus `until` after which the stage ends; None if never
    modifiers: changes applied to the sentence pairs, in order
    """

    name: str
    weights: Mapping[str, Fraction]
    until: str
    passes: int | None
    modifiers: Sequence[Modifier] = ()

    def __str__(self) -> str:
        shares = [f"{corpus} {float(weight):.3g}" for corpus, weight in self.weights.items()]
        passes = "inf" if self.passes is None else self.passes  # syntax of the mixture file
        return f"{self.name}: {', '.join(shares)}, until {self.until} {passes}"


@dataclass(frozen=True)
class Mixture:
    """Corpora and the training stages in which they are mixed.

    corpora: sentence pairs by corpus name
    stages: stages in order
    settings: text of the mixture file, part of the data fingerprint
    tags: tags at the beginning of source lines; all lines of a corpus have the same tag or none
    """

    corpora: Mapping[str, Pairs]
    stages: Sequence[Stage]
    settings: str = ""
    tags: Sequence[str] = ()


def tag_of(line: str, tags: Sequence[str]) -> str:
    """Returns the tag at the beginning of a source line, including the space after the tag; "" if
    the line has no tag. Of two tags of which one begins with the other, the longer is returned."""
    return max((f"{tag} " for tag in tags if line.startswith(f"{tag} ")), key=len, default="")


@dataclass(frozen=True)
class Splits:
    """Training, validation and test sets for translation.

    train: training pairs
    validation: pairs for validation during training
    test: test pairs; None without a test set
    languages: names of the source and target languages
    more_validation: further validation sets by name
    sources: number of tab-separated source texts per line
    factors: names of the factor columns, which have one value per source word
    pictures: whether the last column of a source line is an image name
    mixture: mixture whose corpora, in order, form the training set; None for a single corpus
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
    """Texts with labels for classification.

    texts: lines of text
    labels: labels of each text
    name: origin of the texts, for messages
    multi_label: whether a text may have any number of labels instead of exactly one
    """

    texts: Text
    labels: list[tuple[str, ...]]
    name: str
    multi_label: bool = False

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class LabelledSplits:
    """Training, validation and optional test set for classification."""

    train: Labelled
    validation: Labelled
    test: Labelled | None = None


def as_list(names: str | float | Sequence[str | float] | None) -> list[str]:
    """Returns one name or several names as a list of strings; None becomes an empty list."""
    return (
        [str(names)]
        if isinstance(names, str | float | int)
        else [str(name) for name in names or ()]
    )


def unique_suffixes(paths: Sequence[str]) -> list[str]:
    """Returns the shortest trailing path components that distinguish each path from the rest."""
    split_paths = [path.rstrip("/").split("/") for path in paths]
    suffixes = []
    for parts in split_paths:
        size = 1
        while size < len(parts) and [p[-size:] for p in split_paths].count(parts[-size:]) > 1:
            size += 1
        suffixes.append("/".join(parts[-size:]))
    return suffixes
