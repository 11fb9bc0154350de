"""Files with named columns (tsv, csv, jsonl, parquet), read by HuggingFace `datasets`, which is imported only here and in
hub.py, and only when used."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Literal

from nmt.data import Pairs, Splits, check_not_empty
from nmt.errors import UserError

LOADERS: dict[str, tuple[str, dict[str, Any]]] = {
    # Without these options the reader eats quotation marks and turns "N/A" or "null" into nothing.
    "tsv": ("csv", {"sep": "\t", "quoting": csv.QUOTE_NONE, "keep_default_na": False}),
    "csv": ("csv", {"keep_default_na": False}),
    "jsonl": ("json", {}),
    "parquet": ("parquet", {}),
}


class TableFiles:
    """One file a part; `source` and `target` name the columns, or the languages inside a `translation` column.

    tsv and csv files start with a line of column names; in tsv, quotation marks are ordinary characters.
    """

    def __init__(
        self,
        *,
        format: Literal["tsv", "csv", "jsonl", "parquet"],
        train: str,
        validation: str,
        test: str | None = None,
        source: str,
        target: str,
    ) -> None:
        self.format, self.files, self.languages = format, (train, validation, test), (source, target)

    def load(self) -> Splits:
        train, validation, test = self.files
        return Splits(
            train=self._pairs(train),
            validation=self._pairs(validation),
            test=None if test is None else self._pairs(test),
            languages=self.languages,
        )

    def _pairs(self, file: str) -> Pairs:
        if not Path(file).is_file():
            raise UserError(f"{file}: no such file")
        import datasets

        loader, options = LOADERS[self.format]
        datasets.disable_progress_bars()
        try:
            if loader == "csv":  # numbers are text here
                with open(file, encoding="utf-8-sig", newline="") as opened:
                    dialect = csv.excel_tab if self.format == "tsv" else csv.excel
                    header = next(csv.reader(opened, dialect), [])
                options = {
                    **options,
                    "features": datasets.Features({name: datasets.Value("string") for name in header}),
                }
            table = datasets.load_dataset(loader, data_files={"part": file}, split="part", **options)
        except Exception as error:  # the library wraps what its readers raise
            raise UserError(f"{file}: cannot be read as {self.format}: {error.__cause__ or error}") from error
        return columns(table, *self.languages, name=file)


def columns(table: Any, source: str, target: str, name: str) -> Pairs:
    """The two columns of a `datasets.Dataset` as text; raises UserError if they are not there or hold no text."""
    names = list(table.column_names)
    if source in names and target in names:
        sides = [list(table[source]), list(table[target])]
    elif "translation" in names:
        rows = list(table["translation"])
        known = sorted(rows[0]) if rows else []
        if source not in known or target not in known:
            raise UserError(
                f"{name}: its translation column has the languages {', '.join(known)}; "
                f"data.source={source} and data.target={target} must be two of them"
            )
        sides = [[row[side] for row in rows] for side in (source, target)]
    else:
        raise UserError(
            f"{name}: no columns {source!r} and {target!r}. It has: {', '.join(names)}. Set data.source and data.target"
        )
    for side, values in zip((source, target), sides, strict=True):
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise UserError(f"{name}, row {i + 1:,}: column {side!r} holds {value!r}, not text")
    first, second = ([" ".join(value.split("\n")) for value in values] for values in sides)
    return check_not_empty(Pairs(first, second, name))
