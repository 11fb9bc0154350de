"""Pictures with captions: a table or a folder of images or features, each with one caption or several (Xu et al. 2015);
with a `source` text beside each picture, multimodal translation (Specia et al. 2016).

A part is a table (.csv, .tsv, .jsonl, .parquet), or a folder with such a table called metadata, as in `datasets`'
imagefolder. A cell of the `image` column is the name of a file beside the table (FILE#KEY in .npz and .safetensors); in
.parquet, it may be the image itself, or lists of features."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from nmt.data import Pairs, Splits, check_columns, check_not_empty
from nmt.data.lines import find_file
from nmt.data.pictures import Checked, check_picture
from nmt.data.readers import gathered, read_parquet, stream_jsonl, stream_rows
from nmt.data.sources.digits import PREFIX
from nmt.data.split import cut, into_parts, part_of
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.foundation.ranges import Share

log = logging.getLogger(__name__)
ENDINGS = ("csv", "tsv", "jsonl", "parquet")
FILE_NAME = "file_name"
"""What `datasets` calls the column of images."""
Row = tuple[str, str, list[str], int]
"""The name of a picture, the text beside it, its captions; and the number of its row, later one that changes with the
picture."""


class Captions:
    """`image`, `caption` and `source` are columns, by name (by number from 1 with `header` false). The caption column
    holds a text or a list of texts, or there are several columns. To train, each caption of a picture is a pair; to
    validate and test, the captions of a picture are its references. `language`: of the captions, for metrics. `bad`:
    refuse pictures that are missing or damaged, or skip and count them.

    Raises ValueError if keys contradict each other.
    """

    pictures: ClassVar[bool] = True

    def __init__(
        self,
        *,
        train: str,
        validation: str | None = None,
        test: str | None = None,
        split: Share = 0.0,
        image: str | int = "image",
        caption: str | int | list[str | int] = "caption",
        source: str | int | None = None,
        language: str = "en",
        header: bool = True,
        bad: Literal["refuse", "skip"] = "refuse",
    ) -> None:
        check_columns("", validation, test, split, None)
        self.parts, self.split, self.language = (train, validation, test), split, language
        self.header, self.bad = header, bad
        self.image, self.captions = (
            str(image),
            list(map(str, caption if isinstance(caption, list) else [caption])),
        )
        self.source = None if source is None else str(source)

    def load(self) -> Splits:
        train, validation, test = self.parts
        if self.split:
            rows = self._rows(train)
            named = [train] * 3  # all captions of a picture are in one part
            numbers = into_parts(
                (part_of(self.split, row[0] or row[1]) for row in rows), train, self.split
            )
            cut_up = [[rows[i] for i in its] for its in numbers]
        else:
            named = [train, str(validation), *([test] if test else [])]
            cut_up = [self._rows(part) for part in named]
        parts = [
            self._pairs(rows, name, k == 0)
            for k, (rows, name) in enumerate(zip(cut_up, named, strict=True))
        ]
        return Splits(
            train=parts[0],
            validation=parts[1],
            test=parts[2] if len(parts) > 2 else None,
            languages=(self.source or "picture", self.language),
            sources=0 if self.source is None else 1,
            pictures=True,
        )

    def _pairs(self, rows: Sequence[Row], name: str, training: bool) -> Pairs:
        """To train, a pair for each caption; otherwise, further captions are further references."""
        lines = [name if self.source is None else f"{text}\t{name}" for name, text, *_ in rows]
        content = str([number for *_, number in rows])
        if training:
            pairs = [
                (line, caption) for line, row in zip(lines, rows, strict=True) for caption in row[2]
            ]
            return check_not_empty(
                Pairs(
                    [line for line, _ in pairs],
                    [caption for _, caption in pairs],
                    name,
                    content=content,
                )
            )
        most = max((len(row[2]) for row in rows), default=1)
        others = [[row[2][k] if k < len(row[2]) else "" for row in rows] for k in range(1, most)]
        return check_not_empty(
            Pairs(lines, [row[2][0] for row in rows], name, more_references=others, content=content)
        )

    def _rows(self, part: str) -> list[Row]:
        """Raises UserError if the part is no such table, or if a picture cannot be used."""
        name, slice_ = cut(part)
        file = _table(name)
        table = self._read(file)
        columns, count = list(table.column_names), len(table)
        image = (
            FILE_NAME
            if self.image == "image" and "image" not in columns and FILE_NAME in columns
            else self.image
        )
        wanted = [image, *self.captions, *([self.source] if self.source else [])]
        missing = [each for each in wanted if each not in columns]
        if missing:
            raise UserError(
                f"{file}: no column {' and '.join(map(repr, missing))}. It has: {', '.join(columns)}. Set data.image and "
                "data.caption"
            )
        cells = list(table[image]) if file.suffix != ".parquet" else _named(table, file, image)
        captions, texts = (
            [list(table[each]) for each in self.captions],
            list(table[self.source]) if self.source else None,
        )
        rows = []
        for i in range(count) if slice_ is None else slice_.rows(count):
            where = f"{file}, row {i + 1:,}"
            found = [text for column in captions for text in _texts(column[i], where)]
            beside = "" if texts is None else _line(texts[i], where)
            rows.append((_name(cells[i], file.parent, where), beside, found, i + 1))
        return self._usable(rows, str(file))

    def _usable(self, rows: list[Row], name: str) -> list[Row]:
        """Those with a caption and a picture that can be read, features with as many channels as most. A text may stand
        without a picture."""
        good, faults, channels = list[Row](), list[str](), list[int | None]()
        with Progress("looking at pictures", len(rows), "pictures") as step:
            for row in rows:
                try:
                    if not row[2]:
                        raise UserError(f"row {row[3]:,}: no caption")
                    there = row[0] or self.source is None
                    found = check_picture(row[0]) if there else Checked(0, None)
                    good.append((*row[:3], found.stamp))
                    channels.append(found.channels)
                except UserError as error:
                    faults.append(str(error))
                step()
        most = Counter(filter(None, channels)).most_common(1)
        for row, count in zip(good, channels, strict=True) if most else ():
            if count not in (None, most[0][0]):
                faults.append(f"{row[0]}: {count:,} channels, and most have {most[0][0]:,}")
        if most:
            good = [
                row
                for row, count in zip(good, channels, strict=True)
                if count in (None, most[0][0])
            ]
        if faults:
            some = "; ".join(faults[:5]) + (" …" if len(faults) > 5 else "")
            if self.bad == "refuse":
                few = f"{len(faults):,} of {len(rows):,} rows cannot be used"
                raise UserError(f"{name}: {few}: {some}. To go on without them: data.bad=skip")
            log.warning(
                "%s: %s of %s rows are skipped: %s",
                name,
                f"{len(faults):,}",
                f"{len(rows):,}",
                some,
            )
        return good

    def _read(self, file: Path) -> Any:
        ending = next((each for each in ENDINGS if f".{each}" in file.suffixes), None)
        if ending == "jsonl":
            return gathered(stream_jsonl(file))
        if ending == "parquet":
            return read_parquet(file)
        if ending in ("csv", "tsv"):
            return gathered(stream_rows(file, ending, self.header))  # type: ignore[arg-type]
        raise UserError(
            f"{file}: not a table of pictures (.{', .'.join(ENDINGS)}), nor a folder with metadata.csv or the like"
        )


def _table(name: str) -> Path:
    """The table of a part; raises UserError if there is none."""
    folder = Path(name)
    if not folder.is_dir():
        return find_file(name)
    for ending in ENDINGS:
        if (folder / f"metadata.{ending}").is_file():
            return folder / f"metadata.{ending}"
    raise UserError(
        f"{name}: a folder without metadata.csv, .tsv, .jsonl or .parquet, which says what its pictures show"
    )


def _named(table: Any, file: Path, column: str) -> list[Any]:
    """The cells of a parquet file: names of files, or the places in it where pictures are."""
    cells = list(table[column])
    return [
        cell if isinstance(cell, str) else f"{file.name}#{column}@{i}"
        for i, cell in enumerate(cells)
    ]


def _name(cell: Any, folder: Path, where: str) -> str:
    """The name of a picture as others find it. Raises UserError if the cell holds none."""
    if isinstance(cell, Mapping):
        cell = cell.get("path")
    if not isinstance(cell, str):
        raise UserError(f"{where}: {cell!r} is not the name of a picture")
    cell = cell.strip()
    if "\t" in cell or "\n" in cell:
        raise UserError(f"{where}: a tab or a new line in the name of a picture")
    return cell if not cell or cell.startswith(PREFIX) else str(folder / cell)


def _texts(cell: Any, where: str) -> list[str]:
    """The captions of a cell; empty ones count as none."""
    each = cell if isinstance(cell, list | tuple) else [cell]
    return [text for text in (_line(one, where) for one in each) if text]


def _line(cell: Any, where: str) -> str:
    if not isinstance(cell, str):
        raise UserError(f"{where}: {cell!r} is not a text")
    return " ".join(cell.split())
