"""Tables with named columns, in files (nmt/data/formats) or on the Hugging Face Hub.

Files are parsed in every run, since a cache could become stale.
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
from nmt.data.parts import Keep, PartNames, load_splits, parse_part, split_labelled
from nmt.data.streams import Stream, in_memory
from nmt.foundation.errors import UserError
from nmt.foundation.ranges import Share

Column = str | int
"""Type of names of table columns: a name, or a column number in a file without header."""


class Table:
    """Base class of data sources with named columns, for translation or classification.

    train: training set, as NAME or NAME@START:STOP
    validation: validation sets; the first one selects the best checkpoint
    test: test set; None without a test set
    split: fraction of the training set for validation, and the same fraction for test
    source, target: columns of source and target texts, or languages in a `translation` column
    factors: columns with one value per source word
    alignment: column with word alignments of each training pair
    text: column of texts to classify
    label: column whose cells contain one label or several labels; or a list of columns with the
        values 0 and 1, one column per label
    separator: string between several labels in one cell

    Raises ValueError unless exactly one of source/target and text/label is set, or if settings
    contradict each other.
    """

    def __init__(
        self,
        *,
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
        named = [column is not None for column in (source, target, text, label)]
        if named not in ([True, True, False, False], [False, False, True, True]):
            raise ValueError(
                "data: set either data.source and data.target (for nmt.train), or data.text and "
                "data.label (for nmt.classify)"
            )
        self.parts = PartNames(train, as_list(validation), test, split)
        # The type of the columns determines whether the table is for nmt.train or nmt.classify.
        self.columns: PairColumns | LabelColumns
        if source is not None:
            if separator is not None:
                raise ValueError(
                    "data.separator: has no effect without data.label; leave data.separator out"
                )
            self.columns = PairColumns(
                sources=as_list(source),
                target=str(target),
                factors=as_list(factors),
                alignment=None if alignment is None else str(alignment),
            )
        else:
            if factors or alignment or len(self.parts.validation) > 1:
                raise ValueError(
                    "data: nmt.classify supports only one validation set, and neither data.factors "
                    "nor data.alignment; give one validation set, and leave these keys out"
                )
            self.columns = LabelColumns(
                text=str(text),
                label=as_list(label) if isinstance(label, list) else str(label),
                separator=separator,
            )

    def rows(self, part: str, columns: Sequence[str]) -> Stream[Rows]:
        """Returns the rows of a training, validation or test set.

        part: name of the set as in the configuration, such as a file, but without a slice
        columns: columns to read; the rows may lack all other columns

        Raises UserError if the data set cannot be read.
        """
        raise NotImplementedError

    def load(self, keep: Keep = in_memory) -> Splits:
        """Loads the training, validation and test sets as sentence pairs.

        Raises UserError if a data set cannot be used.
        """
        return load_splits(self._pair_columns, self.parts, self._stream, keep)

    def training_stream(self) -> Stream[Pairs] | None:
        """Returns the training pairs without word alignments; None if the data set is not stored
        locally.

        Raises UserError if the data set cannot be read.
        """
        return self._stream(self.parts.train, aligned=False)

    @property
    def _pair_columns(self) -> PairColumns:
        if not isinstance(self.columns, PairColumns):
            raise UserError(
                "data.text, data.label: used by nmt.classify only; nmt.train needs data.source "
                "and data.target"
            )
        return self.columns

    def _stream(self, part: str, aligned: bool) -> Stream[Pairs]:
        name, slice_ = parse_part(part)
        columns = self._pair_columns if aligned else replace(self._pair_columns, alignment=None)
        rows = self.rows(name, columns.names)
        keys = (rows.settings, *vars(columns).values())
        return rows.map(partial(pairs_of, columns), str(keys)).sliced(slice_)

    conflicts = staticmethod(unread_links)

    def labelled(self) -> LabelledSplits:
        """Loads the training, validation and test sets as labelled texts.

        Raises UserError if a data set cannot be used.
        """
        columns = self.columns
        if not isinstance(columns, LabelColumns):
            raise UserError(
                "data.source, data.target: used by nmt.train only; nmt.classify needs data.text "
                "and data.label"
            )
        # in the order train, validation, test
        parts = [
            columns.read(self.rows(name, columns.names).sliced(slice_))
            for name, slice_ in map(parse_part, self.parts.named)
        ]
        if self.parts.share:
            parts = split_labelled(parts[0], self.parts.share)
        train, *others = parts
        for part in others:
            wrong = [i for i, labels in enumerate(part.labels, 1) if len(labels) != 1]
            if wrong and not train.multi_label:
                raise UserError(
                    f"{part.name}, row {wrong[0]:,}: must have one label, because each text of "
                    f"{train.name} has one; for several labels, write lists in both files"
                )
        return LabelledSplits(*parts)


class TableFiles(Table):
    """Data source with one table file for each of the training, validation and test sets.

    format: csv, tsv, jsonl, parquet, tmx or archive
    header: whether csv and tsv files start with column names; otherwise columns are named 1, 2, 3 …
    quotes: whether quotation marks around the cells of tsv files are removed, as in csv

    All further arguments are those of the base class `Table`. In the formats tmx and archive,
    columns are language codes.
    """

    def __init__(
        self, *, format: str, header: bool = True, quotes: bool = False, **settings: Any
    ) -> None:
        super().__init__(**settings)
        # The parameters of a format's reader declare its options.
        parameters = inspect.signature(reader(format)).parameters
        if not header and "header" not in parameters:
            raise ValueError(
                f"data.header=false: supported by csv and tsv only; columns of {format} have names"
            )
        if quotes and "quotes" not in parameters:
            raise ValueError(
                f"data.quotes=true: supported by tsv only, not by {format}; leave data.quotes out"
            )
        options = {"header": header, "quotes": quotes}
        options = {name: value for name, value in options.items() if name in parameters}
        self._read = partial(reader(format), **options)
        # Part of the cache key of stored pairs.
        self._settings = f"{format} {header}" if "header" in parameters else format
        self._settings += " quotes" * quotes

    def rows(self, part: str, columns: Sequence[str]) -> Stream[Rows]:
        file = find_file(part)
        return Stream(part, partial(self._read, file, columns), [file], self._settings)


def pairs_of(columns: PairColumns, rows: Rows) -> Pairs:
    """Converts table rows into sentence pairs.

    Raises UserError if a column is missing or not text.
    """
    texts = [*columns.sources, columns.target]
    # Real columns take precedence over languages in the `translation` column.
    has_nested_cells = any(map(_is_nested, rows.values.get(TRANSLATION, ())))
    if has_nested_cells and not set(texts) <= set(rows.names):
        rows = _unnested(rows, texts)
    rows.require(columns.names, "data.source and data.target (data.factors, data.alignment)")
    lines = {name: rows.texts(name) for name in columns.names}
    places = {name: f"{rows.name}, column {name!r}, row" for name in columns.names}
    return columns.pairs(lines, rows.name, places, rows.first)


def _is_nested(cell: Any) -> bool:
    """Returns whether a table cell maps languages to texts."""
    # Parquet maps are read as lists of (key, value) tuples.
    return isinstance(cell, Mapping) or (
        isinstance(cell, list) and all(isinstance(item, tuple) for item in cell)
    )


def _unnested(rows: Rows, languages: Sequence[str]) -> Rows:
    """Returns rows with one column for each language in the `translation` column."""
    cells: list[Mapping[str, Any]] = []
    for i, cell in enumerate(rows.values[TRANSLATION]):
        if not _is_nested(cell):
            raise UserError(
                f"{rows.place(i)}: column 'translation' contains {cell!r}, expected a mapping from "
                "languages to texts"
            )
        cells.append(dict(cell))
        if not cells[i].keys() >= set(languages):
            *sources, target = languages
            raise UserError(
                f"{rows.place(i)}: column 'translation' has the languages "
                f"{', '.join(sorted(cells[i]))}; data.source={','.join(sources)} and "
                f"data.target={target} must be among them"
            )
    columns = {language: [cell[language] for cell in cells] for language in languages}
    return replace(rows, names=[*rows.names, *languages], values={**rows.values, **columns})
