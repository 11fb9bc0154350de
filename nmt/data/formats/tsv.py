"""Reads tab-separated values; quotation marks are ordinary characters unless `quotes` is true."""

import csv
import functools
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.data.formats import Rows
from nmt.data.formats.csv import read as read_table

log = logging.getLogger(__name__)
QUOTED = re.compile(r'"(?:[^"]|"")*"')
"""Pattern of a cell that a spreadsheet has quoted, with inner quotation marks doubled."""


def read(
    file: Path, columns: Sequence[str], header: bool = True, quotes: bool = False
) -> Iterator[Rows]:
    """Yields the rows of a table; all rows must have the same width.

    file: path of the table
    columns: names of the columns to read
    header: whether the first row contains the column names; otherwise columns are named 1, 2, 3 …
    quotes: whether quotation marks around cells are removed, and doubled quotation marks inside
        cells are replaced by single ones
    """
    quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    num_quoted = 0
    num_cells = 0
    has_doubled = False
    for rows in read_table(file, columns, header, delimiter="\t", quoting=quoting):
        cells = list(itertools.chain.from_iterable(rows.values.values()))
        quoted = [cell for cell in cells if cell.startswith('"') and QUOTED.fullmatch(cell)]
        num_cells += len(cells)
        num_quoted += len(quoted)
        has_doubled = has_doubled or any('""' in cell[1:-1] for cell in quoted)
        yield rows
    # A few quoted cells without inner marks may be direct speech, so they cause no warning.
    if not quotes and (has_doubled or 0 < num_quoted == num_cells):
        _warn(file, num_quoted, num_cells)


@functools.cache
def _warn(file: Path, num_quoted: int, num_cells: int) -> None:
    """Logs a warning about table cells in quotation marks, once per file."""
    log.warning(
        "%s: %s of %s cells are in quotation marks, which are read as text. If a spreadsheet "
        "wrote the table, set data.quotes=true",
        file,
        f"{num_quoted:,}",
        f"{num_cells:,}",
    )
