"""Files with named columns: tsv, csv, jsonl, parquet. HuggingFace `datasets` is imported only here and in hub.py, and only
when it is used. Files are read anew every time: a cache of them could be stale."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nmt.data import (
    Labelled,
    LabelledSplits,
    Pairs,
    Splits,
    check_columns,
    check_not_empty,
    check_values,
    listed,
    side_by_side,
)
from nmt.data.links import check_links
from nmt.data.split import read_parts, split_labelled
from nmt.data.text import HALF, not_encodable, stream_lines
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Share

csv.field_size_limit(2**31 - 1)  # a cell may be long


@dataclass(frozen=True)
class Columns:
    """What a file holds, by the names of its columns."""

    values: dict[str, list[Any]]
    features: dict[str, Any] = field(default_factory=dict)

    @property
    def column_names(self) -> list[str]:
        return list(self.values)

    def __getitem__(self, name: str) -> list[Any]:
        return self.values[name]


class Table:
    """Data with named columns: `source` and `target` for translation (or languages inside a `translation` column), or
    `text` and `label` for classification. The label column holds one label, a list of labels, or several labels in one
    text with a `separator` between them; or there is a column of 0 and 1 for each label, and `label` lists them.

    `split`: a share of the training part for validation, and as much for the test, instead of parts of their own.
    `validation` may be several parts: the first chooses the best checkpoint. `source` may be several columns. `factors`:
    columns with a value for each word of the source; `alignment`: a column with the links of each training pair.

    Raises ValueError unless exactly one of the two pairs of columns is named, or if keys contradict each other.
    """

    def __init__(
        self,
        parts: tuple[str, str | list[str] | None, str | None],
        *,
        split: float,
        source: str | list[str] | None,
        factors: list[str] | None,
        alignment: str | None,
        target: str | None,
        text: str | None,
        label: str | list[str] | None,
        separator: str | None,
    ) -> None:
        pairs = (source is not None, target is not None), (text is not None, label is not None)
        if pairs not in (((True, True), (False, False)), ((False, False), (True, True))):
            raise ValueError(
                "data: name two columns, data.source= and data.target= (nmt.train) or data.text= and data.label= "
                "(nmt.classify)"
            )
        if label == []:
            raise ValueError("data.label: name at least one column")
        if separator is not None and (text is None or not separator or isinstance(label, list)):
            raise ValueError("data.separator: is the text between several labels; use it together with data.label")
        check_columns("" if source is None else source, parts[1], parts[2], split, factors)
        if source is None and (factors or alignment or isinstance(parts[1], list)):
            raise ValueError(
                "data: several validation parts, data.factors and data.alignment are for nmt.train, with data.source"
            )
        self.parts, self.separator, self.split = parts, separator, split
        self._pair, self._labelled = (source, target), (text, label)
        self._factors, self._alignment = factors or [], alignment

    def _open(self, part: str) -> tuple[Any, str]:
        """A part as a `datasets.Dataset`, and its name for messages. Raises UserError if it cannot be read."""
        raise NotImplementedError

    def load(self) -> Splits:
        source, target = self._pair
        if source is None or target is None:
            raise UserError("data.text, data.label: are for nmt.classify; nmt.train needs data.source and data.target")
        sources, (train_part, validation_part, test_part) = listed(source), self.parts

        def read(part: str, aligned: bool) -> Pairs:
            return columns(*self._open(part), sources, target, self._factors, self._alignment if aligned else None)

        parts = train_part, listed(validation_part or []), test_part
        train, validation, test, beside = read_parts(read, *parts, self.split)
        return Splits(
            train=train,
            validation=validation,
            test=test,
            languages=("+".join(sources), target),
            beside=beside,
            sources=len(sources),
            factors=self._factors,
        )

    def labelled(self) -> LabelledSplits:
        text, label = self._labelled
        if text is None or label is None:
            raise UserError("data.source, data.target: are for nmt.train; nmt.classify needs data.text and data.label")
        train_part, validation_part, test_part = self.parts
        if self.split:
            whole, several = labels(*self._open(train_part), text, label, self.separator)
            return LabelledSplits(*split_labelled(whole, self.split), several)
        parts = [train_part, *listed(validation_part or []), *filter(None, [test_part])]
        read = [labels(*self._open(part), text, label, self.separator) for part in parts]
        (train, several), (validation, _), test = read[0], read[1], read[2] if test_part else None
        return LabelledSplits(train, validation, None if test is None else test[0], several)


class TableFiles(Table):
    """One file per part. tsv and csv files start with a line of column names; in tsv, quotation marks are ordinary
    characters."""

    def __init__(
        self,
        *,
        format: Literal["tsv", "csv", "jsonl", "parquet"],
        train: str,
        validation: str | list[str] | None = None,
        test: str | None = None,
        split: Share = 0.0,
        source: str | list[str] | None = None,
        target: str | None = None,
        factors: list[str] | None = None,
        alignment: str | None = None,
        text: str | None = None,
        label: str | list[str] | None = None,
        separator: str | None = None,
    ) -> None:
        super().__init__(
            (train, validation, test), split=split, source=source, target=target, factors=factors, alignment=alignment,
            text=text, label=label, separator=separator,
        )  # fmt: skip
        self.format = format

    def _open(self, part: str) -> tuple[Any, str]:
        if not Path(part).is_file():
            raise UserError(f"{part}: no such file")
        read = {"tsv": _read_tsv, "csv": _read_csv, "jsonl": _read_jsonl, "parquet": _read_parquet}[self.format]
        return read(Path(part)), part


def _read_tsv(file: Path) -> Columns:
    return _read_rows(file, "\t", csv.QUOTE_NONE)


def _read_csv(file: Path) -> Columns:
    return _read_rows(file, ",", csv.QUOTE_MINIMAL)


def _read_rows(file: Path, separator: str, quoting: Any) -> Columns:
    """Rows below a line of column names, all of the same width. Every cell is text as it stands there."""
    lines = stream_lines(file, keep_return=True)
    reader = csv.reader((line + "\n" for line in lines), delimiter=separator, quoting=quoting, strict=True)
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise UserError(f"{file}, line 1: two columns have the same name ({', '.join(header)})")
        rows = []
        for row in reader:
            if row and len(row) != len(header):
                raise UserError(
                    f"{file}, line {reader.line_num:,}: {len(row)} columns, but the header has {len(header)} "
                    f"({', '.join(header)})"
                )
            rows += [row] if row else []
    except csv.Error as error:
        what = "a carriage return inside a cell" if "new-line character" in str(error) else str(error)
        raise UserError(f"{file}, line {reader.line_num:,}: cannot be read as a table: {what}") from error
    if not rows:
        raise UserError(f"{file}: no rows in it")
    return Columns({name: [row[i] for row in rows] for i, name in enumerate(header)})


def _read_jsonl(file: Path) -> Columns:
    """An object a line, each with the keys of the first."""
    values: dict[str, list[Any]] = {}
    for number, line in enumerate(stream_lines(file), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{file}, line {number:,}: not JSON ({error})") from error
        if not isinstance(row, dict):
            raise UserError(
                f'{file}, line {number:,}: not an object with columns by name, such as {{"en": …, "de": …}}'
            )
        values = values or {str(name): [] for name in row}
        missing = [name for name in values if name not in row]
        if missing:
            raise UserError(f"{file}, line {number:,}: has no {', '.join(missing)}, which the first line has")
        for name, held in values.items():
            held.append(row[name])
    if not values:
        raise UserError(f"{file}: no rows in it")
    return Columns(values)


def _read_parquet(file: Path) -> Any:
    import datasets
    import pyarrow.parquet
    from datasets.table import InMemoryTable

    try:
        table = pyarrow.parquet.read_table(file)
        return datasets.Dataset(InMemoryTable(table), fingerprint="a file")
    except Exception as error:  # the library raises errors of many kinds
        raise UserError(f"{file}: cannot be read as parquet: {error}") from error


def columns(
    table: Any,
    name: str,
    sources: Sequence[str],
    target: str,
    factors: Sequence[str] = (),
    alignment: str | None = None,
) -> Pairs:
    """Columns of a `datasets.Dataset` as text; raises UserError if they are not there or hold no text."""
    names, wanted = list(table.column_names), [*sources, target]
    beside = [*factors, *filter(None, [alignment])]
    if all(side in names for side in wanted):
        found = {side: list(table[side]) for side in wanted}
    elif "translation" in names:
        rows = list(table["translation"])
        known = sorted(rows[0]) if rows else []
        if not all(side in known for side in wanted):
            raise UserError(
                f"{name}: its translation column has the languages {', '.join(known)}; "
                f"data.source={','.join(sources)} and data.target={target} must be among them"
            )
        found = {side: [row[side] for row in rows] for side in wanted}
    else:
        raise UserError(
            f"{name}: no columns {', '.join(map(repr, sources))} and {target!r}. It has: {', '.join(names)}. "
            "Set data.source and data.target"
        )
    for key, columns_ in (("data.factors", factors), ("data.alignment", beside[len(factors) :])):
        for column in columns_:
            if column not in names:
                raise UserError(f"{name}: no column {column!r}. It has: {', '.join(names)}. Set {key}")
            found[column] = list(table[column])
    text = {column: _lines(values, column, name) for column, values in found.items()}
    for column in factors:
        check_values(f"{name}, column {column!r}, row", text[sources[0]], text[column])
    links = None if alignment is None else text[alignment]
    source = side_by_side([text[column] for column in (*sources, *factors)])
    pairs = check_not_empty(Pairs(source, text[target], name, links))
    if links is not None:
        check_links(pairs, f"{name}, column {alignment!r}, row", len(factors))
    return pairs


def labels(table: Any, name: str, text: str, label: str | list[str], separator: str | None) -> tuple[Labelled, bool]:
    """Texts and labels of a `datasets.Dataset`, and whether a text may have several labels. Numeric labels are replaced
    by their names if the data set has names for them. Raises UserError if the columns are not there, or a text has no
    label where it must have one."""
    names = list(table.column_names)
    missing = [each for each in [text, *([label] if isinstance(label, str) else label)] if each not in names]
    if missing:
        what = " and ".join(map(repr, missing))
        raise UserError(f"{name}: no column {what}. It has: {', '.join(names)}. Set data.text and data.label")
    if not isinstance(label, str):
        columns_ = [_marks(list(table[each]), each, name) for each in label]
        marked = [tuple(n for n, mark in zip(label, row, strict=True) if mark) for row in zip(*columns_, strict=True)]
        return Labelled(_lines(list(table[text]), text, name), marked, name), True
    feature, values = table.features.get(label), list(table[label])
    of = getattr(getattr(feature, "feature", feature), "names", None)
    several = separator is not None or any(isinstance(value, list) for value in values[:1])
    found = []
    for i, value in enumerate(values):
        parts = value if isinstance(value, list) else [value]
        if several and any(part is None for part in parts) and parts != [None]:
            raise UserError(f"{name}, row {i + 1:,}: one of the labels in column {label!r} is null")
        written = [of[p] if of and isinstance(p, int) else "" if p is None else str(p) for p in parts]
        if separator is not None:
            written = [piece for text in written for piece in text.split(separator)]
        tidy = tuple(dict.fromkeys(filter(None, (" ".join(text.split()) for text in written))))
        if any(not_encodable(text) for text in tidy):
            raise UserError(f"{name}, row {i + 1:,}: column {label!r} holds {HALF}")
        if not several and not tidy:
            raise UserError(f"{name}, row {i + 1:,}: column {label!r} holds no label")
        found.append(tidy)
    if not found:
        raise UserError(f"{name}: no texts in it")
    return Labelled(_lines(list(table[text]), text, name), found, name), several


MARKS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}


def _marks(values: list[Any], column: str, name: str) -> list[bool]:
    """A column of 0 and 1. Raises UserError where one is something else."""
    for i, value in enumerate(values):
        if str(value).strip().lower() not in MARKS:
            raise UserError(f"{name}, row {i + 1:,}: column {column!r} holds {value!r}, not 0 or 1")
    return [MARKS[str(value).strip().lower()] for value in values]


def _lines(values: list[Any], column: str, name: str) -> list[str]:
    """The values of a column, each on one line. Raises UserError where one is not text."""
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise UserError(f"{name}, row {i + 1:,}: column {column!r} holds {value!r}, not text")
        if not_encodable(value):
            raise UserError(f"{name}, row {i + 1:,}: column {column!r} holds {HALF}")
    return [" ".join(value.split("\n")) for value in values]
