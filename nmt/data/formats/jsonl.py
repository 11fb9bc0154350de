"""JSON lines: an object on each line, with columns as keys."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows, present
from nmt.data.lines import batched, stream_lines
from nmt.foundation.errors import UserError


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """The objects of all lines. Empty lines are skipped; the first object names the columns."""
    names: list[str] = []
    for chunk in batched(_objects(file)):
        names = names or list(chunk[0][1])  # of the first object
        requested = present(names, columns)
        for number, row in chunk:
            missing = [name for name in requested if name not in row]
            if missing:
                raise UserError(
                    f"{file}, line {number:,}: has no {', '.join(missing)}, "
                    "which the first line has"
                )
        values = {name: [row[name] for _, row in chunk] for name in requested}
        yield Rows(str(file), names, values)


def _objects(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects."""
    for number, line in enumerate(stream_lines(file), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # RecursionError: deep nesting
            raise UserError(f"{file}, line {number:,}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise UserError(
                f"{file}, line {number:,}: not an object with columns by name, "
                'such as {"en": …, "de": …}'
            )
        yield number, row
