"""Files with named columns (tsv, csv, jsonl, parquet), read by HuggingFace `datasets`, which is imported only here and in
hub.py, and only when used."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any, Literal

from nmt.data import Labelled, LabelledSplits, Pairs, Splits, check_not_empty
from nmt.foundation.errors import UserError

LOADERS: dict[str, tuple[str, dict[str, Any]]] = {
    # Without these options the reader removes quotation marks and turns "N/A" or "null" into missing values.
    "tsv": ("csv", {"sep": "\t", "quoting": csv.QUOTE_NONE, "keep_default_na": False}),
    "csv": ("csv", {"keep_default_na": False}),
    "jsonl": ("json", {}),
    "parquet": ("parquet", {}),
}


class Table:
    """Data with named columns: `source` and `target` for translation (or languages inside a `translation` column), or
    `text` and `label` for classification. The label column holds one label, a list of labels, or several labels in one
    text with a `separator` between them.

    Raises ValueError unless exactly one of the two pairs of columns is named.
    """

    def __init__(
        self,
        parts: tuple[str, str, str | None],
        *,
        source: str | None,
        target: str | None,
        text: str | None,
        label: str | None,
        separator: str | None,
    ) -> None:
        pairs = (source is not None, target is not None), (text is not None, label is not None)
        if pairs not in (((True, True), (False, False)), ((False, False), (True, True))):
            raise ValueError(
                "data: name two columns, data.source= and data.target= (nmt.train) or data.text= and data.label= "
                "(nmt.classify)"
            )
        if separator is not None and (text is None or not separator):
            raise ValueError("data.separator: is the text between several labels; use it together with data.label")
        self.parts, self.separator = parts, separator
        self._pair, self._labelled = (source, target), (text, label)

    def _open(self, part: str) -> tuple[Any, str]:
        """A part as a `datasets.Dataset`, and its name for messages. Raises UserError if it cannot be read."""
        raise NotImplementedError

    def load(self) -> Splits:
        source, target = self._pair
        if source is None or target is None:
            raise UserError("data.text, data.label: are for nmt.classify; nmt.train needs data.source and data.target")
        train, validation, test = (
            None if part is None else columns(*self._open(part), source, target) for part in self.parts
        )
        assert train is not None
        assert validation is not None
        return Splits(train=train, validation=validation, test=test, languages=(source, target))

    def labelled(self) -> LabelledSplits:
        text, label = self._labelled
        if text is None or label is None:
            raise UserError("data.source, data.target: are for nmt.train; nmt.classify needs data.text and data.label")
        read = [None if p is None else labels(*self._open(p), text, label, self.separator) for p in self.parts]
        (train, several), (validation, _), test = read[0], read[1], read[2]  # type: ignore[misc]
        return LabelledSplits(train, validation, None if test is None else test[0], several)


class TableFiles(Table):
    """One file per part. tsv and csv files start with a line of column names; in tsv, quotation marks are ordinary
    characters."""

    def __init__(
        self,
        *,
        format: Literal["tsv", "csv", "jsonl", "parquet"],
        train: str,
        validation: str,
        test: str | None = None,
        source: str | None = None,
        target: str | None = None,
        text: str | None = None,
        label: str | None = None,
        separator: str | None = None,
    ) -> None:
        super().__init__(
            (train, validation, test), source=source, target=target, text=text, label=label, separator=separator
        )
        self.format = format

    def _open(self, part: str) -> tuple[Any, str]:
        if not Path(part).is_file():
            raise UserError(f"{part}: no such file")
        import datasets

        loader, options = LOADERS[self.format]
        datasets.disable_progress_bars()
        try:
            if loader == "csv":  # numbers are text here
                open_it = gzip.open if part.endswith(".gz") else open
                with open_it(part, "rt", encoding="utf-8-sig", newline="") as opened:
                    dialect = csv.excel_tab if self.format == "tsv" else csv.excel
                    header = next(csv.reader(opened, dialect), [])
                features = datasets.Features({name: datasets.Value("string") for name in header})
                options = {**options, "features": features}
            return datasets.load_dataset(loader, data_files={"part": part}, split="part", **options), part
        except Exception as error:  # the library wraps what its readers raise
            if "corresponds to no data" in str(error):
                raise UserError(f"{part}: no rows in it") from error
            raise UserError(f"{part}: cannot be read as {self.format}: {error.__cause__ or error}") from error


def columns(table: Any, name: str, source: str, target: str) -> Pairs:
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
    first, second = (_lines(values, side, name) for side, values in zip((source, target), sides, strict=True))
    return check_not_empty(Pairs(first, second, name))


def labels(table: Any, name: str, text: str, label: str, separator: str | None) -> tuple[Labelled, bool]:
    """Texts and labels of a `datasets.Dataset`, and whether a text may have several labels. Numeric labels are replaced
    by their names if the data set has names for them. Raises UserError if the columns are not there, or a text has no
    label where it must have one."""
    names = list(table.column_names)
    if text not in names or label not in names:
        raise UserError(
            f"{name}: no columns {text!r} and {label!r}. It has: {', '.join(names)}. Set data.text and data.label"
        )
    feature, values = table.features[label], list(table[label])
    of = getattr(getattr(feature, "feature", feature), "names", None)
    several = separator is not None or any(isinstance(value, list) for value in values[:1])
    found = []
    for i, value in enumerate(values):
        parts = value if isinstance(value, list) else [value]
        if separator is not None:
            parts = [piece.strip() for part in parts for piece in str(part or "").split(separator) if piece.strip()]
        written = tuple(dict.fromkeys(of[p] if of and isinstance(p, int) else str(p).strip() for p in parts))
        if not several and (value is None or not written[0]):
            raise UserError(f"{name}, row {i + 1:,}: column {label!r} holds no label")
        found.append(written)
    if not found:
        raise UserError(f"{name}: no texts in it")
    return Labelled(_lines(list(table[text]), text, name), found, name), several


def _lines(values: list[Any], column: str, name: str) -> list[str]:
    """The values of a column, each on one line. Raises UserError where one is not text."""
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise UserError(f"{name}, row {i + 1:,}: column {column!r} holds {value!r}, not text")
    return [" ".join(value.split("\n")) for value in values]
