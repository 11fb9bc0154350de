"""Table file formats; `data.format` names the module of a format.

A format is a function `read(file, columns)` that yields `Rows` in chunks; the function may skip
columns that are not requested. If `read` has the parameter `header` or `quotes`, it is a key of
`data`; a further key needs a parameter of `TableFiles` (nmt/data/sources/table.py), too.

Modules in reading order: this file, csv, tsv, then the others in any order.
"""

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nmt.foundation.errors import UsageError, UserError

ReadTable = Callable[..., "Iterator[Rows]"]
LINE_BREAK = re.compile(r"\r\n|\r|\n")
"""Line break inside a table cell; replaced by a space, because each text must be a single line."""
TRANSLATION = "translation"
"""Name of the Hugging Face data set column whose cells map language codes to texts."""

SEPARATORS = {
    "\t": ". For tab-separated columns, set data=tsv",
    ",": ". For comma-separated columns, set data=csv",
    ";": ". Semicolons are not supported; save the table with commas or tabs",
}
"""Hints for a table whose first row is read as a single column, by the separator in the row."""


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a table.

    name: file or part of the data set, for messages
    names: names of all columns
    values: cells of each requested column
    first: number of the first row, counted from 1
    class_names: class names of columns whose cells are class indices
    is_delimited: whether the rows are from CSV or TSV, for which messages suggest `data.header` and
        `data.quotes`
    """

    name: str
    names: Sequence[str]
    values: Mapping[str, Sequence[Any]]
    first: int = 1
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_delimited: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.values.values()), ()))

    def select(self, indices: range) -> "Rows":
        """Returns the rows in a range of consecutive indices."""
        rows = slice(indices.start, indices.stop)
        return replace(
            self,
            values={name: column[rows] for name, column in self.values.items()},
            first=self.first + indices.start,
        )

    def place(self, i: int) -> str:
        """Returns the name of the table and the number of row `i`, for messages."""
        return f"{self.name}, row {self.first + i:,}"

    def require(self, columns: Sequence[str], keys: str) -> None:
        """Raises UserError if a column is missing.

        columns: required column names
        keys: configuration keys that contain the names, for the message
        """
        missing = [column for column in columns if column not in self.names]
        if not missing:
            return
        clues = (
            (
                any(" " in name for name in self.names),
                ". If the first line is data, set data.header=false and give column numbers",
            ),
            (
                all(map(str.isdecimal, missing)) and not all(map(str.isdecimal, self.names)),
                ". Column numbers need data.header=false",
            ),
            (bool(separator_clue(self.names)), separator_clue(self.names)),
            (
                self.names and all(name.startswith('"') for name in self.names),
                ". If a spreadsheet wrote the table, set data.quotes=true",
            ),
        )
        hint = next((text for applies, text in clues if applies and self.is_delimited), "")
        raise UsageError(
            f"{self.name}: column{'s' * (len(missing) > 1)} "
            f"{' and '.join(map(repr, missing))} not found "
            f"(available: {', '.join(map(_shortened, self.names))}){hint}. Set {keys}"
        )

    def texts(self, column: str) -> list[str]:
        """Returns the cells of a column, with line breaks replaced by spaces.

        Raises UserError if a cell is not text.
        """
        cells = self.values[column]
        for i, cell in enumerate(cells):
            if not isinstance(cell, str):
                raise UserError(f"{self.place(i)}: column {column!r} contains {cell!r}, not text")
        # A line break inside a cell would split the line when it is written to a file.
        return [LINE_BREAK.sub(" ", cell) for cell in cells]


def separator_clue(first_row: Sequence[str]) -> str:
    """Returns the hint about the format of a table, for an error message, if the first row was read
    as a single column but contains another separator; otherwise "".
    """
    row = first_row[0] if len(first_row) == 1 else ""
    return next((text for separator, text in SEPARATORS.items() if separator in row), "")


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"


def reader(format: str) -> ReadTable:
    """Returns the function that reads a table format. The returned function raises UserError for a
    file without rows.

    Raises ValueError if the format is unknown.
    """
    # Every module in this folder is a format.
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    if format not in names:
        raise ValueError(f"data.format={format}: must be one of {', '.join(names)}")
    read: ReadTable = importlib.import_module(f"{__name__}.{format}").read

    @functools.wraps(read)  # the reader's signature declares the options of the format
    def numbered(file: Path, columns: Sequence[str], **options: Any) -> Iterator[Rows]:
        first = 1
        for rows in read(file, columns, **options):
            yield replace(rows, first=first)
            first += len(rows)
        if first == 1:
            raise UserError(f"{file}: contains no rows")

    return numbered


def present(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Returns the requested columns that a table has, and the `translation` column if present."""
    return [column for column in dict.fromkeys((*columns, TRANSLATION)) if column in names]
