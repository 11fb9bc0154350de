"""Table formats, a file each. `data.format` is the name of the file.

A format is a function `read(file, columns)` that yields `Rows`, a chunk at a time. `reader` numbers
the chunks. A format may leave out columns that are not requested. Further arguments, such as
`header`, are keys of `data`.

Read: this file, csv, tsv, the rest in any order.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nmt.data.lines import LONE_SURROGATE, has_surrogate
from nmt.foundation.errors import UserError

ReadTable = Callable[..., "Iterator[Rows]"]
LINE_BREAK = re.compile(r"\r\n|\r|\n")
"""Line break within a cell; a text has none."""
TRANSLATION = "translation"
"""Column of the hub's data sets that contains a mapping from languages to texts."""


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    name: file or part, for messages.
    names: names of all columns.
    values: cells of the requested columns, by column.
    first: number of the first row, from 1.
    class_names: names of the classes, by column, where cells are numbers of classes.
    """

    name: str
    names: Sequence[str]
    values: Mapping[str, Sequence[Any]]
    first: int = 1
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    def select(self, indices: range) -> Rows:
        """The rows with these indices, which are consecutive."""
        rows = slice(indices.start, indices.stop)
        values = {name: column[rows] for name, column in self.values.items()}
        return replace(self, values=values, first=self.first + indices.start)

    def place(self, i: int) -> str:
        """Part and number of row `i`, for messages."""
        return f"{self.name}, row {self.first + i:,}"

    def require(self, columns: Sequence[str], keys: str) -> None:
        """Raises UserError if a column does not exist.

        columns: names of the columns.
        keys: configuration keys that contain the names, for the message.
        """
        missing = [column for column in columns if column not in self.names]
        if not missing:
            return
        # A single name often means that another character separates the columns.
        only_name = self.names[0] if len(self.names) == 1 else ""
        clues = (
            (
                any(" " in name for name in self.names),
                ". If this first line is a row: data.header=false, and columns by their numbers",
            ),
            ("," in only_name, ". Is it data=csv?"),
            ("\t" in only_name, ". Is it data=tsv?"),
            (
                ";" in only_name,
                ". Columns are separated by semicolons: save the table with commas or tabs",
            ),
            (
                self.names and all(name.startswith('"') for name in self.names),
                ". If these are quotation marks of a spreadsheet: data.quotes=true",
            ),
        )
        hint = next((text for applies, text in clues if applies), "")
        raise UserError(
            f"{self.name}: no column{'s' * (len(missing) > 1)} "
            f"{' and '.join(map(repr, missing))}. "
            f"It has: {', '.join(map(_shortened, self.names))}{hint}. Set {keys}"
        )

    def texts(self, column: str) -> list[str]:
        """Cells of a column, each as one line. Raises UserError for a cell that is not text."""
        cells = self.values[column]
        for i, cell in enumerate(cells):
            if not isinstance(cell, str):
                raise UserError(f"{self.place(i)}: column {column!r} holds {cell!r}, not text")
            if has_surrogate(cell):
                raise UserError(f"{self.place(i)}: column {column!r} holds {LONE_SURROGATE}")
        # Lines of text are written to files and must stay lines.
        return [LINE_BREAK.sub(" ", cell) for cell in cells]


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"


def reader(format: str) -> ReadTable:
    """The function that reads a format. Raises ValueError if the format is unknown.

    It raises UserError for a file without rows.
    """
    # From the files: a new format is one file.
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if format not in names:
        raise ValueError(f"data.format={format}: must be one of {', '.join(names)}")
    read: ReadTable = importlib.import_module(f"{__name__}.{format}").read

    @functools.wraps(read)  # the signature declares the options of the format
    def numbered(file: Path, columns: Sequence[str], **options: Any) -> Iterator[Rows]:
        first = 1
        for rows in read(file, columns, **options):
            yield replace(rows, first=first)
            first += len(rows)
        if first == 1:
            raise UserError(f"{file}: contains no rows")

    return numbered


def present(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """The requested columns that a table has, and the column that may contain translations."""
    return [column for column in dict.fromkeys((*columns, TRANSLATION)) if column in names]
