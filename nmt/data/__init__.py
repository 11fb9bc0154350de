"""Where text comes from, parallel or labelled. A data set is one file here and one YAML in conf/data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from nmt.foundation.errors import UserError


@dataclass(frozen=True)
class Pairs:
    """Aligned sentences: source[i] and target[i] mean the same. `name` says where they come from."""

    source: list[str]
    target: list[str]
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

    texts: list[str]
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
