"""Tables: data with named columns, in a file for each part (nmt/data/formats) or on the hub.

Files are read again in every run: a cache of them could be stale.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from nmt.data import LabelledSplits, Pairs, Splits, as_list
from nmt.data.formats import TRANSLATION, Rows, reader
from nmt.data.label_columns import LabelColumns
from nmt.data.lines import find_file
from nmt.data.pair_columns import PairColumns, unread_links
from nmt.data.parts import (
    Keep,
    PartNames,
    Stream,
    in_memory,
    load_splits,
    parse_part,
    split_labelled,
)
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Share

Column = str | int
"""Column by its name, or by its number in a file without names."""


class Table:
    """Data with named columns, for translation or for classification.

    train, validation, test: parts, NAME or NAME@START:STOP. Of several validation parts, the first
        one chooses the best checkpoint.
    split: share of the training part for validation, and as much for the test, instead of named
        parts.
    source, target: columns to translate, or languages inside a `translation` column. `source` may
        be several columns.
    factors: columns with a value for each word of the source.
    alignment: column with the word alignments of each training pair.
    text, label: columns to classify. The label column contains one label, or a list of labels. If
        `label` is a list, its columns contain 0 and 1, one for each label.
    separator: text between several labels in one cell.

    Raises ValueError unless exactly one of the two pairs of columns is named, or if keys contradict
    each other.
    """

    def __init__(
        self,
        *,
        train: str,
        validation: str | list[str] | None,
        test: str | None,
        split: float,
        source: Column | Sequence[Column] | None,
        target: Column | None,
        factors: Sequence[Column] | None,
        alignment: Column | None,
        text: Column | None,
        label: Column | Sequence[Column] | None,
        separator: str | None,
    ) -> None:
        named = [column is not None for column in (source, target, text, label)]
        if named not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError(
                "data: name two columns, data.source= and data.target= (nmt.train) or data.text= "
                "and data.label= (nmt.classify)"
            )
        self.parts = PartNames(train, as_list(validation), test, split)
        # Their type decides whether the table is for nmt.train or nmt.classify.
        self.columns: PairColumns | LabelColumns
        if source is not None:
            if separator is not None:
                raise ValueError("data.separator: is for data.label; leave it out")
            self.columns = PairColumns(
                sources=as_list(source),
                target=str(target),
                factors=as_list(factors),
                alignment=None if alignment is None else str(alignment),
            )
        else:
            if factors or alignment or len(self.parts.validation) > 1:
                raise ValueError(
                    "data: several validation parts, data.factors and data.alignment are for "
                    "nmt.train, with data.source"
                )
            labels = as_list(label) if isinstance(label, list) else str(label)
            self.columns = LabelColumns(str(text), labels, separator)

    def rows(self, part: str, columns: Sequence[str]) -> Stream[Rows]:
        """All rows of a part. Raises UserError if the part cannot be read.

        part: name of the part.
        columns: columns to read; other columns may be missing in the rows.
        """
        raise NotImplementedError

    def load(self, keep: Keep = in_memory) -> Splits:
        """The parts as sentence pairs. Raises UserError if a part cannot be used."""
        columns = self.columns
        if not isinstance(columns, PairColumns):
            raise UserError(
                "data.text, data.label: are for nmt.classify; nmt.train needs data.source and "
                "data.target"
            )

        def read(part: str, aligned: bool) -> Stream[Pairs]:
            name, slice_ = parse_part(part)
            read_columns = columns if aligned else columns.without_alignment()
            rows = self.rows(name, read_columns.names)
            keys = (rows.settings, *vars(read_columns).values())
            return rows.map(partial(pairs_of, read_columns), str(keys)).sliced(slice_)

        return load_splits(columns, self.parts, read, keep)

    def training_stream(self) -> Stream[Rows] | None:
        """The rows of the training part, if it is on this machine.

        Raises UserError if it cannot be read.
        """
        name, slice_ = parse_part(self.parts.train)
        return self.rows(name, self.columns.names).sliced(slice_)

    conflicts = staticmethod(unread_links)

    def labelled(self) -> LabelledSplits:
        """The parts as labelled texts. Raises UserError if a part cannot be used."""
        columns = self.columns
        if not isinstance(columns, LabelColumns):
            raise UserError(
                "data.source, data.target: are for nmt.train; nmt.classify needs data.text and "
                "data.label"
            )
        parts = []
        for name, slice_ in map(parse_part, self.parts.named):  # train, validation, test
            parts.append(columns.read(self.rows(name, columns.names).sliced(slice_)))
        if self.parts.share:
            parts = split_labelled(parts[0], self.parts.share)
        train, validation, *test = parts  # the order of `named` and of `split_labelled`
        return LabelledSplits(train, validation, test[0] if test else None, train.multi_label)


class TableFiles(Table):
    """One file per part, in a format of nmt/data/formats.

    format: csv, tsv, jsonl, parquet, tmx or archive.
    header: whether tsv and csv files start with a line of column names. Without it, columns are
        called 1, 2, 3 ….
    quotes: whether quotation marks around the cells of tsv files are removed, as in csv.

    The other arguments are those of `Table`; in tmx and archive, columns are languages.
    """

    def __init__(
        self,
        *,
        format: str,
        header: bool = True,
        quotes: bool = False,
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
            train=train,
            validation=validation,
            test=test,
            split=split,
            source=source,
            target=target,
            factors=factors,
            alignment=alignment,
            text=text,
            label=label,
            separator=separator,
        )
        # A format declares its options by the parameters of its reader.
        parameters = inspect.signature(reader(format)).parameters
        if not header and "header" not in parameters:
            raise ValueError(
                f"data.header=false: is for tsv and csv; columns of {format} have names"
            )
        if quotes and "quotes" not in parameters:
            raise ValueError(f"data.quotes=true: is for tsv, not for {format}; leave it out")
        options = {"header": header, "quotes": quotes}
        options = {name: value for name, value in options.items() if name in parameters}
        self._read = partial(reader(format), **options)
        # Part of the key of stored text; it stays as it is, so that old stores are found.
        self._settings = f"{format} {header}" if "header" in parameters else format
        self._settings += " quotes" * quotes

    def rows(self, part: str, columns: Sequence[str]) -> Stream[Rows]:
        file = find_file(part)
        return Stream(part, partial(self._read, file, columns), [file], self._settings)


def pairs_of(columns: PairColumns, rows: Rows) -> Pairs:
    """Sentence pairs of rows. Raises UserError if a column is missing or not text."""
    texts = [*columns.sources, columns.target]
    # Columns of these names, if they exist, come before languages of the column `translation`.
    if TRANSLATION in rows.values and not set(texts) <= set(rows.names):
        rows = _unnested(rows, texts)
    rows.require(columns.names, "data.source and data.target (data.factors, data.alignment)")
    lines = {name: rows.texts(name) for name in columns.names}
    places = {name: f"{rows.name}, column {name!r}, row" for name in columns.names}
    return columns.pairs(lines, rows.name, places, rows.first)


def _unnested(rows: Rows, languages: Sequence[str]) -> Rows:
    """Rows with a column for each language of the column `translation`."""
    cells: list[Mapping[str, Any]] = []
    for i, cell in enumerate(rows.values[TRANSLATION]):
        # Maps of parquet files are lists of pairs.
        is_map = isinstance(cell, list) and all(isinstance(item, tuple) for item in cell)
        if not isinstance(cell, Mapping) and not is_map:
            raise UserError(
                f"{rows.place(i)}: its translation column holds {cell!r}, not texts by language"
            )
        cells.append(dict(cell))
        if not cells[i].keys() >= set(languages):
            *sources, target = languages
            raise UserError(
                f"{rows.place(i)}: its translation column has the languages "
                f"{', '.join(sorted(cells[i]))}; data.source={','.join(sources)} and "
                f"data.target={target} must be among them"
            )
    columns = {language: [cell[language] for cell in cells] for language in languages}
    return replace(rows, names=[*rows.names, *languages], values={**rows.values, **columns})
