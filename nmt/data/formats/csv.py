"""Reads comma-separated values; cells that contain commas or line breaks are quoted.

The reader of the standard library is used because of its strictness. pyarrow is three times as fast
(0.8 s instead of 2.5 s for 870,000 rows), but reports no error for an unclosed quotation mark.
pyarrow also drops quotation marks inside cells.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows, present, separator_clue
from nmt.data.lines import batched, stream_lines
from nmt.foundation.errors import UserError

csv.field_size_limit(2**31 - 1)  # the default limit is 131,072 characters per cell


def read(
    file: Path,
    columns: Sequence[str],
    header: bool = True,
    **dialect: Any,
) -> Iterator[Rows]:
    """Yields the rows of a table; all rows must have the same width.

    file: path of the table
    columns: names of the columns to read
    header: whether the first row contains the column names; otherwise columns are named 1, 2, 3 …
    dialect: options of `csv.reader`, such as the delimiter, a comma by default
    """
    lines = (line + "\n" for line in stream_lines(file))
    parsed = csv.reader(lines, strict=True, **dialect)
    try:
        rows = _same_width(parsed, file, header)
        names = next(rows, []) if header else []
        for chunk in batched(rows):
            # Column numbers replace a missing header.
            names = names or [str(i + 1) for i in range(len(chunk[0]))]
            requested = present(names, columns)
            if any(names.count(name) > 1 for name in requested):
                raise UserError(f"{file}, line 1: duplicate column names ({', '.join(names)})")
            yield Rows(
                name=str(file),
                names=names,
                values={name: [row[names.index(name)] for row in chunk] for name in requested},
                is_delimited=True,
            )
    except csv.Error as error:
        # csv.Error has no error codes; the message is the only way to identify a problem.
        is_return = "new-line character" in str(error)
        problem = "a carriage return inside a cell" if is_return else str(error)
        raise UserError(
            f"{file}, line {parsed.line_num:,}: cannot be read as a table: {problem}"
        ) from error


def _same_width(parsed: Any, file: Path, header: bool) -> Iterator[list[str]]:
    """Yields the non-empty rows of a CSV or TSV table.

    Raises UserError if a row has a different number of cells than the first row.
    """
    first_row: list[str] = []
    for row in filter(None, parsed):
        first_row = first_row or row
        if len(row) != len(first_row):
            names = f" ({', '.join(first_row)})" if header else ""
            raise UserError(
                f"{file}, line {parsed.line_num:,}: {len(row)} column{'s' * (len(row) != 1)}, but "
                f"the {'header' if header else 'first row'} has {len(first_row)}{names}"
                f"{separator_clue(first_row)}"
            )
        yield row
