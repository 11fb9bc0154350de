"""Where text comes from, parallel or labelled. A data set is one file here and one YAML in conf/data.

Imported by: corpus, inference, task, configuration, align, evaluate, score.
Read: this file, text, table, hub, everyday, reverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, overload, runtime_checkable

from nmt.foundation.errors import UserError

Text = Sequence[str]
"""Lines, by index, slice and iteration: a list in memory, or an object that reads them on demand."""


class Selection(Text):
    """Some lines of a text, by their indices: a view, no copy."""

    def __init__(self, text: Text, indices: Sequence[int]) -> None:
        self._text, self._indices = text, indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, i: int, /) -> str: ...
    @overload
    def __getitem__(self, i: slice, /) -> list[str]: ...
    def __getitem__(self, i: int | slice, /) -> str | list[str]:
        if isinstance(i, slice):
            return [self._text[index] for index in self._indices[i]]
        return self._text[self._indices[i]]


@dataclass(frozen=True)
class Pairs:
    """Aligned sentences: source[i] and target[i] mean the same. `name` says where they come from."""

    source: Text
    target: Text
    name: str

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class Splits:
    """The three parts of a data set; `test` is None if there is none. `languages` names source and target."""

    train: Pairs
    validation: Pairs
    test: Pairs | None
    languages: tuple[str, str]


@runtime_checkable
class Data(Protocol):
    """A data set: built from its YAML's keys, loaded once."""

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
    """The three parts of a labelled data set. `several`: a text may have any number of labels, otherwise exactly one."""

    train: Labelled
    validation: Labelled
    test: Labelled | None
    several: bool


def check_not_empty(pairs: Pairs) -> Pairs:
    """The pairs themselves; raises UserError if there are none."""
    if not len(pairs):
        raise UserError(f"{pairs.name}: no sentence pairs in it")
    return pairs
