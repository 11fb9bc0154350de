"""Converts table columns of texts and labels into labelled texts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from nmt.data import Labelled, as_list
from nmt.data.formats import Rows
from nmt.data.streams import Stream
from nmt.foundation.errors import UserError

Labels = tuple[str, ...]
MARKS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}
"""Accepted cells of a binary label column and their Boolean values."""


@dataclass(frozen=True)
class LabelColumns:
    """Columns named by the keys data.text, data.label and data.separator.

    text: column of the texts
    label: column of the labels, or a list of binary columns, one per label
    separator: string between several labels in one cell; None for one label per cell

    Raises ValueError if the settings contradict each other.
    """

    text: str
    label: str | list[str]
    separator: str | None

    def __post_init__(self) -> None:
        if self.label == []:
            raise ValueError("data.label: must name at least one column")
        if self.separator is not None and (not self.separator or isinstance(self.label, list)):
            raise ValueError(
                "data.separator: must not be empty. The separator divides the cells of one column "
                "into labels, so data.label must name a single column"
            )

    @property
    def names(self) -> list[str]:
        """Names of all columns to read: the column of texts and the columns of labels."""
        return [self.text, *as_list(self.label)]

    def read(self, stream: Stream[Rows]) -> Labelled:
        """Reads all texts and labels of a stream.

        Raises UserError for missing columns, texts or labels.
        """
        texts: list[str] = []
        labels: list[Labels] = []
        multi_label = isinstance(self.label, list) or self.separator is not None
        for rows in stream.read():
            rows.require(self.names, "data.text and data.label")
            if isinstance(self.label, list):
                labels += _marked_labels(rows, self.label)
            else:
                # The first cell that is not empty determines whether texts have several labels.
                cells = (cell for cell in rows.values[self.label] if cell is not None)
                is_list = not texts and isinstance(next(cells, None), list)
                multi_label = multi_label or is_list
                labels += _listed_labels(rows, self.label, self.separator, multi_label)
            texts += rows.texts(self.text)
        if not texts:
            raise UserError(f"{stream.name}: contains no texts")
        return Labelled(texts, labels, stream.name, multi_label)


def _marked_labels(rows: Rows, columns: Sequence[str]) -> list[Labels]:
    """Returns the labels whose binary columns contain 1, for each row.

    Raises UserError if a cell is neither 0 nor 1.
    """
    # [labels][texts]; None for a cell that is neither 0 nor 1
    marks = [[MARKS.get(str(c).strip().lower()) for c in rows.values[name]] for name in columns]
    for column, cells in zip(columns, marks, strict=True):
        if None in cells:
            i = cells.index(None)
            cell = rows.values[column][i]
            raise UserError(f"{rows.place(i)}: column {column!r} contains {cell!r}, not 0 or 1")
    return [tuple(itertools.compress(columns, row)) for row in zip(*marks, strict=True)]


def _listed_labels(
    rows: Rows, column: str, separator: str | None, multi_label: bool
) -> list[Labels]:
    """Returns the labels of each row, from list cells, separated cells or single-label cells.

    rows: consecutive rows of the table
    column: column of labels; class indices are replaced by class names
    separator: string between the labels of a cell; None for one label per cell
    multi_label: whether a text may have any number of labels, including none

    Raises UserError for an invalid or missing label.
    """
    classes = rows.class_names.get(column, ())
    labels = []
    for i, cell in enumerate(rows.values[column]):
        values = cell if isinstance(cell, list) else [cell]
        if values == [None]:
            values = []  # an empty cell contains no labels
        if None in values:
            raise UserError(f"{rows.place(i)}: a label in column {column!r} is null")
        numbers = [value for value in values if classes and isinstance(value, int)]
        for number in numbers:
            if not 0 <= number < len(classes):
                raise UserError(
                    f"{rows.place(i)}: column {column!r} contains {number}, expected a label "
                    f"number from 0 to {len(classes) - 1}"
                )
        names = [classes[value] if value in numbers else str(value) for value in values]
        if separator is not None:
            names = [piece for name in names for piece in name.split(separator)]
        # Spaces are normalised, so that labels differing only in spaces are equal.
        names = [" ".join(name.split()) for name in names]
        labels.append(tuple(dict.fromkeys(filter(None, names))))
        if len(labels[i]) > 1 and not multi_label:
            raise UserError(
                f"{rows.place(i)}: column {column!r} contains a list of labels, but the first cell "
                "contains a single label; write a list in every row"
            )
        if not labels[i] and not multi_label:
            raise UserError(f"{rows.place(i)}: column {column!r} contains no label")
    return labels
