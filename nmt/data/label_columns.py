"""Columns of texts and labels, as labelled texts."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from nmt.data import Labelled
from nmt.data.formats import Rows
from nmt.data.lines import LONE_SURROGATE, has_surrogate
from nmt.data.stream import Stream
from nmt.foundation.errors import UserError

Labels = tuple[str, ...]
MARKS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
"""Cells of a column that says which texts have a label."""


@dataclass(frozen=True)
class LabelColumns:
    """The keys data.text, data.label and data.separator.

    text: column of texts.
    label: column of labels; or a list of columns of 0 and 1, one for each label.
    separator: text between several labels in one cell, or None.

    Raises ValueError if they contradict each other.
    """

    text: str
    label: str | list[str]
    separator: str | None

    def __post_init__(self) -> None:
        if self.label == []:
            raise ValueError("data.label: name at least one column")
        if self.separator is not None and (not self.separator or isinstance(self.label, list)):
            raise ValueError(
                "data.separator: is the text between several labels; use it together with "
                "data.label"
            )

    @property
    def names(self) -> list[str]:
        """All columns."""
        labels = self.label if isinstance(self.label, list) else [self.label]
        return [self.text, *labels]

    def read(self, stream: Stream[Rows]) -> Labelled:
        """All texts of a part. Raises UserError for missing columns, texts or labels."""
        texts: list[str] = []
        labels: list[Labels] = []
        multi_label = isinstance(self.label, list) or self.separator is not None
        for rows in stream.read():
            rows.require(self.names, "data.text and data.label")
            if isinstance(self.label, list):
                labels += marked_labels(rows, self.label)
            elif self.separator is not None:
                labels += separated_labels(rows, self.label, self.separator)
            else:
                if not texts:
                    multi_label = isinstance(rows.values[self.label][0], list)
                labels += listed_labels(rows, self.label, multi_label)
            texts += rows.texts(self.text)
        if not texts:
            raise UserError(f"{stream.name}: no texts in it")
        return Labelled(texts, labels, stream.name, multi_label)


def marked_labels(rows: Rows, columns: Sequence[str]) -> list[Labels]:
    """Labels whose column holds 1. Raises UserError for a cell that is not 0 or 1."""
    marks = [_marks(rows, column) for column in columns]
    return [tuple(itertools.compress(columns, row)) for row in zip(*marks, strict=True)]


def separated_labels(rows: Rows, column: str, separator: str) -> list[Labels]:
    """Labels in one cell with a separator between them, any number for each text."""
    labels = []
    for i, names in enumerate(_label_names(rows, column)):
        pieces = itertools.chain.from_iterable(name.split(separator) for name in names)
        labels.append(_cleaned(pieces, rows, i, column))
    return labels


def listed_labels(rows: Rows, column: str, multi_label: bool) -> list[Labels]:
    """Labels in lists, or one label in each cell.

    Raises UserError for a text without its label unless `multi_label` is true.
    """
    labels = []
    for i, names in enumerate(_label_names(rows, column)):
        cleaned = _cleaned(names, rows, i, column)
        if not cleaned and not multi_label:
            raise UserError(f"{rows.place(i)}: column {column!r} holds no label")
        labels.append(cleaned)
    return labels


def _label_names(rows: Rows, column: str) -> list[list[str]]:
    """The labels of each cell as text; numbers of classes are replaced by the classes' names."""
    classes = rows.class_names.get(column)
    names = []
    for i, cell in enumerate(rows.values[column]):
        values = cell if isinstance(cell, list) else [cell]
        if None in values and values != [None]:
            raise UserError(f"{rows.place(i)}: one of the labels in column {column!r} is null")
        for value in values:
            if classes and isinstance(value, int) and not 0 <= value < len(classes):
                raise UserError(
                    f"{rows.place(i)}: column {column!r} holds {value}, not one of the "
                    f"{len(classes)} classes, which are numbered from 0"
                )
        names.append([_label_name(value, classes) for value in values])
    return names


def _label_name(value: Any, classes: Sequence[str] | None) -> str:
    if classes and isinstance(value, int):
        return classes[value]
    return "" if value is None else str(value)


def _cleaned(names: Iterable[str], rows: Rows, i: int, column: str) -> Labels:
    """Different labels of row `i`, without needless spaces. Raises UserError for invalid text."""
    labels = tuple(dict.fromkeys(filter(None, (" ".join(name.split()) for name in names))))
    if any(map(has_surrogate, labels)):
        raise UserError(f"{rows.place(i)}: column {column!r} holds {LONE_SURROGATE}")
    return labels


def _marks(rows: Rows, column: str) -> list[bool]:
    """A column of 0 and 1. Raises UserError for any other cell."""
    marks = []
    for i, cell in enumerate(rows.values[column]):
        mark = MARKS.get(str(cell).strip().lower())
        if mark is None:
            raise UserError(f"{rows.place(i)}: column {column!r} holds {cell!r}, not 0 or 1")
        marks.append(mark)
    return marks
