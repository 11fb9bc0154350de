"""Tab-separated values. Quotation marks are ordinary characters."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.data.formats import Rows
from nmt.data.formats.csv import read_rows


def read(file: Path, columns: Sequence[str], header: bool = True) -> Iterator[Rows]:
    """The rows below a line of column names, all of the same width.

    Without such a line (`header` is false), columns are called 1, 2, 3 ….
    """
    return read_rows(file, columns, header, delimiter="\t", quoting=csv.QUOTE_NONE)
