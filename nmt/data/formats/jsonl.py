"""Reads JSON lines: one JSON object per line, whose keys are the columns."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows, present
from nmt.data.lines import batched, stream_lines
from nmt.data.text_encoding import LONE_SURROGATE, has_surrogate
from nmt.foundation.errors import UserError


def read(file: Path, columns: Sequence[str]) -> Iterator[Rows]:
    """Yields the rows of a JSON Lines file, with one JSON object per non-empty line. The keys of
    the first object name the columns.
    """
    names: list[str] = []
    for chunk in batched(_objects(file)):
        names = names or list(chunk[0][1])  # the keys of the first object name the columns
        requested = present(names, columns)
        for number, row in chunk:
            missing = [name for name in requested if name not in row]
            if missing:
                raise UserError(
                    f"{file}, line {number:,}: JSON key {', '.join(missing)} not found; all "
                    "lines need the keys of the first line"
                )
            cells = [row[name] for name in requested]
            # Only JSON can express lone surrogates; the other formats are decoded strictly.
            if has_surrogate(json.dumps(cells, ensure_ascii=False)):
                raise UserError(f"{file}, line {number:,}: contains {LONE_SURROGATE}")
        yield Rows(
            name=str(file),
            names=names,
            values={name: [row[name] for _, row in chunk] for name in requested},
        )


def _objects(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line number and the JSON object of each non-empty line."""
    for number, line in enumerate(stream_lines(file), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # deeply nested JSON raises RecursionError
            raise UserError(f"{file}, line {number:,}: invalid JSON ({error})") from error
        if not isinstance(row, dict):
            raise UserError(
                f"{file}, line {number:,}: expected a JSON object that maps column names to "
                'cells, such as {"en": …, "de": …}'
            )
        yield number, row
