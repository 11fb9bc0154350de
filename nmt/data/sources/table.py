"""Data with named columns, in files of many formats (readers.py) or on the hub (hub.py). Files are read anew every time: a
cache of them could be stale."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from nmt.data import (
    Labelled,
    LabelledSplits,
    Pairs,
    Splits,
    as_list,
    check_columns,
    check_values,
    join_columns,
)
from nmt.data.lines import CHUNK, LONE_SURROGATE, find_file, has_surrogate
from nmt.data.links import check_links
from nmt.data.readers import (
    gathered,
    read_archive,
    read_parquet,
    read_tmx,
    stream_jsonl,
    stream_parquet,
    stream_rows,
)
from nmt.data.split import cut, split_labelled
from nmt.data.stream import Keep, Stream, in_memory, read_parts
from nmt.foundation.errors import UserError
from nmt.foundation.extras import advice, installed
from nmt.foundation.ranges import Share

Column = str | int
"""A column by its name, or by its number in a file without names."""


class Table:
    """Data with named columns: `source` and `target` for translation (or languages inside a `translation` column), or
    `text` and `label` for classification. The label column holds one label, a list of labels, or several labels in one
    text with a `separator` between them; or there is a column of 0 and 1 for each label, and `label` lists them.

    `split`: a share of the training part for validation, and as much for the test, instead of parts of their own.
    `validation` may be several parts: the first chooses the best checkpoint. `source` may be several columns. `factors`:
    columns with a value for each word of the source; `alignment`: a column with the links of each training pair.
    A part may be NAME@START:STOP, some rows of NAME.

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
            raise ValueError(
                "data.separator: is the text between several labels; use it together with data.label"
            )
        check_columns("" if source is None else source, parts[1], parts[2], split, factors)
        if source is None and (factors or alignment or isinstance(parts[1], list)):
            raise ValueError(
                "data: several validation parts, data.factors and data.alignment are for nmt.train, with data.source"
            )
        self.parts, self.separator, self.split = parts, separator, split
        self._pair, self._labelled = (source, target), (text, label)
        self._factors, self._alignment = factors or [], alignment

    def _open(self, part: str) -> tuple[Any, str]:
        """A part as `Columns` or a `datasets.Dataset`, and its name for messages. Raises UserError if it cannot be read."""
        raise NotImplementedError

    def _tables(self, part: str) -> tuple[Callable[[], Iterator[Any]], str, list[Path], str]:
        """A part chunk by chunk: how it is read, its name for messages, its files, and what else its content depends on."""
        table, what = self._open(part)

        def read() -> Iterator[Any]:
            for start in range(0, len(table), CHUNK):
                yield table.select(range(start, min(start + CHUNK, len(table))))

        return read, what, [], str(getattr(table, "_fingerprint", what))

    def _rows(self, part: str) -> tuple[Any, str]:
        """As `_open`, of NAME@START:STOP too."""
        name, slice_ = cut(part)
        table, what = self._open(name)
        return (
            (table, what)
            if slice_ is None
            else (table.select(slice_.rows(len(table))), f"{what}@{slice_}")
        )

    def load(self, keep: Keep = in_memory) -> Splits:
        source, target = self._pair
        if source is None or target is None:
            raise UserError(
                "data.text, data.label: are for nmt.classify; nmt.train needs data.source and data.target"
            )
        sources, (train_part, validation_part, test_part) = as_list(source), self.parts

        def read(part: str, aligned: bool) -> Stream:
            (part, slice_), alignment = cut(part), self._alignment if aligned else None
            tables, name, files, settings = self._tables(part)

            def chunks() -> Iterator[Pairs]:
                first = 1
                for table in tables():
                    yield columns(table, name, sources, target, self._factors, alignment, first)
                    first += len(table)

            settings = str((settings, sources, target, self._factors, alignment))
            return Stream(name, chunks, files, settings).sliced(slice_)

        parts = train_part, as_list(validation_part or []), test_part
        train, validation, test, beside = read_parts(read, keep, *parts, self.split)
        return Splits(
            train=train,
            validation=validation,
            test=test,
            languages=("+".join(sources), target),
            more_validation=beside,
            sources=len(sources),
            factors=self._factors,
        )

    def labelled(self) -> LabelledSplits:
        text, label = self._labelled
        if text is None or label is None:
            raise UserError(
                "data.source, data.target: are for nmt.train; nmt.classify needs data.text and data.label"
            )
        train_part, validation_part, test_part = self.parts
        if self.split:
            whole, several = labels(*self._rows(train_part), text, label, self.separator)
            return LabelledSplits(*split_labelled(whole, self.split), several)
        parts = [train_part, *as_list(validation_part or []), *filter(None, [test_part])]
        read = [labels(*self._rows(part), text, label, self.separator) for part in parts]
        (train, several), (validation, _), test = read[0], read[1], read[2] if test_part else None
        return LabelledSplits(train, validation, None if test is None else test[0], several)


class TableFiles(Table):
    """One file per part. tsv and csv files start with a line of column names; without it (`header` false), columns are
    called 1, 2, 3 …. In tmx and archive, they are called by languages.

    Raises ValueError if these contradict each other.
    """

    def __init__(
        self,
        *,
        format: Literal["tsv", "csv", "jsonl", "parquet", "tmx", "archive"],
        header: bool = True,
        train: str,
        validation: str | list[str] | None = None,
        test: str | None = None,
        split: Share = 0.0,
        source: Column | list[Column] | None = None,
        target: Column | None = None,
        factors: list[Column] | None = None,
        alignment: Column | None = None,
        text: Column | None = None,
        label: Column | list[Column] | None = None,
        separator: str | None = None,
    ) -> None:
        super().__init__(
            (train, validation, test), split=split, source=_names(source), target=_name(target), factors=_names(factors),
            alignment=_name(alignment), text=_name(text), label=_names(label), separator=separator,
        )  # fmt: skip
        self.format, self.header = format, header
        if format == "parquet" and not installed("datasets"):
            raise ValueError(advice("datasets"))
        if not header and format not in ("tsv", "csv"):
            raise ValueError(
                f"data.header=false: is for tsv and csv; columns of {format} have names"
            )

    def _tables(self, part: str) -> tuple[Callable[[], Iterator[Any]], str, list[Path], str]:
        file = find_file(part)
        match self.format:
            case "tsv" | "csv" as format:
                return (
                    partial(stream_rows, file, format, self.header),
                    part,
                    [file],
                    f"{format} {self.header}",
                )
            case "jsonl":
                return partial(stream_jsonl, file), part, [file], "jsonl"
            case "parquet":
                return partial(stream_parquet, file), part, [file], "parquet"
        read, what, _, _ = super()._tables(part)
        return read, what, [file], self.format

    def _open(self, part: str) -> tuple[Any, str]:
        return self._read(find_file(part)), part

    def _read(self, file: Path) -> Any:
        match self.format:
            case "tsv" | "csv":
                return gathered(stream_rows(file, self.format, self.header))
            case "jsonl":
                return gathered(stream_jsonl(file))
            case "parquet":
                return read_parquet(file)
        source, target = self._pair
        if source is None or target is None:
            raise UserError(
                f"data={self.format} has translations and no labels: set data.source and data.target"
            )
        languages = [*as_list(source), target]
        return read_tmx(file, languages) if self.format == "tmx" else read_archive(file, languages)


def _names(columns: Column | list[Column] | None) -> Any:
    """Columns by their names as text, wherever they are numbers."""
    return [str(column) for column in columns] if isinstance(columns, list) else _name(columns)


def _name(column: Column | None) -> str | None:
    return None if column is None else str(column)


def columns(
    table: Any,
    name: str,
    sources: Sequence[str],
    target: str,
    factors: Sequence[str] = (),
    alignment: str | None = None,
    first: int = 1,
) -> Pairs:
    """Columns of a part as text, the row `first` and those after it; raises UserError if they are not there or hold no
    text."""
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
        raise UserError(f"{_lacks(name, wanted, names)}. Set data.source and data.target")
    for key, columns_ in (("data.factors", factors), ("data.alignment", beside[len(factors) :])):
        for column in columns_:
            if column not in names:
                raise UserError(
                    f"{name}: no column {column!r}. It has: {', '.join(names)}. Set {key}"
                )
            found[column] = list(table[column])
    text = {column: _lines(values, column, name, first) for column, values in found.items()}
    for column in factors:
        check_values(f"{name}, column {column!r}, row", text[sources[0]], text[column], first)
    links = None if alignment is None else text[alignment]
    source = join_columns([text[column] for column in (*sources, *factors)])
    pairs = Pairs(source, text[target], name, links)
    if links is not None:
        check_links(pairs, f"{name}, column {alignment!r}, row", len(factors), first)
    return pairs


def labels(
    table: Any, name: str, text: str, label: str | list[str], separator: str | None
) -> tuple[Labelled, bool]:
    """Texts and labels of a `datasets.Dataset`, and whether a text may have several labels. Numeric labels are replaced
    by their names if the data set has names for them. Raises UserError if the columns are not there, or a text has no
    label where it must have one."""
    names = list(table.column_names)
    wanted = [text, *([label] if isinstance(label, str) else label)]
    if not all(each in names for each in wanted):
        raise UserError(f"{_lacks(name, wanted, names)}. Set data.text and data.label")
    if not isinstance(label, str):
        columns_ = [_marks(list(table[each]), each, name) for each in label]
        marked = [
            tuple(n for n, mark in zip(label, row, strict=True) if mark)
            for row in zip(*columns_, strict=True)
        ]
        return Labelled(_lines(list(table[text]), text, name), marked, name), True
    feature, values = table.features.get(label), list(table[label])
    of = getattr(getattr(feature, "feature", feature), "names", None)
    several = separator is not None or any(isinstance(value, list) for value in values[:1])
    found = []
    for i, value in enumerate(values):
        parts = value if isinstance(value, list) else [value]
        if several and any(part is None for part in parts) and parts != [None]:
            raise UserError(f"{name}, row {i + 1:,}: one of the labels in column {label!r} is null")
        written = [
            of[p] if of and isinstance(p, int) else "" if p is None else str(p) for p in parts
        ]
        if separator is not None:
            written = [piece for text in written for piece in text.split(separator)]
        tidy = tuple(dict.fromkeys(filter(None, (" ".join(text.split()) for text in written))))
        if any(has_surrogate(text) for text in tidy):
            raise UserError(f"{name}, row {i + 1:,}: column {label!r} holds {LONE_SURROGATE}")
        if not several and not tidy:
            raise UserError(f"{name}, row {i + 1:,}: column {label!r} holds no label")
        found.append(tidy)
    if not found:
        raise UserError(f"{name}: no texts in it")
    return Labelled(_lines(list(table[text]), text, name), found, name), several


def _lacks(name: str, wanted: Sequence[str], names: Sequence[str]) -> str:
    """Which columns a table has not, which it has, and what may be the reason."""
    missing, there = (
        [each for each in wanted if each not in names],
        ", ".join(map(_shortened, names)),
    )
    hint = ""
    if any(" " in each for each in names):
        hint = ". If this first line is a row: data.header=false, and columns by their numbers"
    elif len(names) == 1 and any(mark in names[0] for mark in ",\t"):
        hint = f". Is it data={'csv' if ',' in names[0] else 'tsv'}?"
    return f"{name}: no column{'s' * (len(missing) > 1)} {' and '.join(map(repr, missing))}. It has: {there}{hint}"


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


MARKS = {"0": False, "1": True, "0.0": False, "1.0": True, "false": False, "true": True}


def _marks(values: list[Any], column: str, name: str) -> list[bool]:
    """A column of 0 and 1. Raises UserError where one is something else."""
    for i, value in enumerate(values):
        if str(value).strip().lower() not in MARKS:
            raise UserError(f"{name}, row {i + 1:,}: column {column!r} holds {value!r}, not 0 or 1")
    return [MARKS[str(value).strip().lower()] for value in values]


def _lines(values: list[Any], column: str, name: str, first: int = 1) -> list[str]:
    """The values of a column, each on one line. Raises UserError where one is not text."""
    for row, value in enumerate(values, first):
        if not isinstance(value, str):
            raise UserError(f"{name}, row {row:,}: column {column!r} holds {value!r}, not text")
        if has_surrogate(value):
            raise UserError(f"{name}, row {row:,}: column {column!r} holds {LONE_SURROGATE}")
    return [" ".join(value.split("\n")) for value in values]
