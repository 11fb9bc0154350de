"""Tab-separated values. Quotation marks are ordinary characters unless `quotes` is true."""

import csv
import functools
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt.data.formats import Rows
from nmt.data.formats.csv import read_rows

log = logging.getLogger(__name__)
QUOTED = re.compile(r'"(?:[^"]|"")*"')
"""A cell as spreadsheets quote it: marks inside it are doubled."""


def read(
    file: Path, columns: Sequence[str], header: bool = True, quotes: bool = False
) -> Iterator[Rows]:
    """The rows below a line of column names, all of the same width.

    file: the file.
    columns: columns that are asked for.
    header: whether there are column names; without them, columns are called 1, 2, 3 ….
    quotes: whether quotation marks around a cell are removed, and doubled ones inside it halved.
    """
    if quotes:
        yield from read_rows(file, columns, header, delimiter="\t")
        return
    quoted = 0
    has_doubled = False
    count = 0
    for rows in read_rows(file, columns, header, delimiter="\t", quoting=csv.QUOTE_NONE):
        for cell in itertools.chain.from_iterable(rows.values.values()):
            count += 1
            if cell.startswith('"') and QUOTED.fullmatch(cell):
                quoted += 1
                has_doubled = has_doubled or '""' in cell[1:-1]
        yield rows
    # a few cells with marks around them and none inside may be direct speech
    if has_doubled or 0 < quoted == count:
        _warn(file, quoted, count)


@functools.cache
def _warn(file: Path, quoted: int, count: int) -> None:
    """Logs a warning, once for each file."""
    log.warning(
        "%s: %s of %s cells are in quotation marks, which are kept as text. "
        "If a spreadsheet wrote them: data.quotes=true",
        file,
        f"{quoted:,}",
        f"{count:,}",
    )
