"""Image captions (Xu et al. 2015), optionally with a source text to translate (Specia et al. 2016).

A training, validation or test set is a table (.csv, .tsv, .jsonl, .parquet), or a folder with a
table called metadata, as in the imagefolder format of `datasets`. A cell of the image column is a
file name relative to the table, or FILE#KEY for .npz and .safetensors. In .parquet, a cell may
contain the image or nested lists of features.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from nmt.data import Pairs, Splits, as_list
from nmt.data.digit_images import PREFIX
from nmt.data.formats import Rows, reader
from nmt.data.lines import find_file
from nmt.data.parts import PartNames, parse_part, split_rows
from nmt.data.pictures import PictureInfo, check_picture
from nmt.data.streams import Stream
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.progress import tracked
from nmt.foundation.ranges import Share

log = logging.getLogger(__name__)
FORMATS = ("csv", "tsv", "jsonl", "parquet")
FILE_NAME = "file_name"
"""Name of the image column in an imagefolder table."""
NO_PICTURE = PictureInfo(stamp=0, channels=None)
SHOWN_FAULTS = 5
"""Maximum number of invalid rows listed in a message."""


@dataclass(frozen=True)
class Captioned:
    """Row of a caption table.

    number: row number, from 1
    picture: image name; "" for none
    text: source text to translate; "" for none
    captions: captions of the image
    info: properties of the image
    """

    number: int
    picture: str
    text: str
    captions: list[str]
    info: PictureInfo = NO_PICTURE


class Captions:
    """Data source of images with captions, and optionally source texts.

    In training, each caption of an image forms a pair. In validation and test sets, all captions of
    an image are its references.

    train: training table, as FILE or FILE@START:STOP
    validation: validation table; None with `split`
    test: test table; None without a test set
    split: fraction of the images for validation, and the same fraction for test
    image: column of image names: a column name, or a column number if the table has no header
    caption: column of captions, with a text or a list of texts per cell, or several columns
    source: column of source texts; None without source texts
    language: language of the captions, for metrics
    header: whether csv and tsv files start with column names
    bad: treatment of rows with missing or damaged images: refuse (raises an error) or skip (leaves
        these rows out)

    Raises ValueError if the settings contradict each other.
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
        self.parts = PartNames(train, as_list(validation), test, split)
        self.image = str(image)
        self.captions = as_list(caption)
        self.source = as_list(source)  # a list of at most one column
        self.language = language
        self.header = header
        self.bad = bad

    def load(self) -> Splits:
        """Reads the tables and checks all images. Raises UserError if a table is missing or
        invalid.
        """
        rows_by_part = [self._rows(part) for part in self.parts.named]
        names = self.parts.named
        if self.parts.share:
            folder = _table_of(parse_part(self.parts.train)[0]).parent
            rows_by_part = split_rows(
                rows=rows_by_part[0],
                text_of=partial(_identity, folder=folder),
                name=self.parts.train,
                share=self.parts.share,
            )
            names = names * len(rows_by_part)  # with `split`, all parts are from the training table
        train, validation, *test = zip(rows_by_part, names, strict=True)
        return Splits(
            train=self._caption_pairs(*train),
            validation=self._with_references(*validation),
            test=self._with_references(*test[0]) if test else None,
            languages=((self.source or ["picture"])[0], self.language),
            sources=len(self.source),
            pictures=True,
        )

    def _caption_pairs(self, rows: Sequence[Captioned], name: str) -> Pairs:
        """Returns one sentence pair for each caption of each image."""
        return Pairs(
            source=[self._source_line(row) for row in rows for _ in row.captions],
            target=[caption for row in rows for caption in row.captions],
            name=name,
            content=str([row.info.stamp for row in rows]),
        )

    def _with_references(self, rows: Sequence[Captioned], name: str) -> Pairs:
        """Returns one pair per image; all captions after the first are further references."""
        stamps = {self._source_line(row): row.info.stamp for row in rows}
        captions: dict[str, list[str]] = {line: [] for line in stamps}
        for row in rows:  # an image may have several rows
            captions[self._source_line(row)] += row.captions
        # [captions per image][images]
        first, *others = map(list, itertools.zip_longest(*captions.values(), fillvalue=""))
        return Pairs(
            source=[*captions],
            target=first,
            name=name,
            more_references=others,
            content=str([*stamps.values()]),
        )

    def _source_line(self, row: Captioned) -> str:
        return f"{row.text}\t{row.picture}" if self.source else row.picture

    def _rows(self, part: str) -> list[Captioned]:
        """Returns the valid rows of a training, validation or test set. Raises UserError if no row
        is valid."""
        name, slice_ = parse_part(part)
        file = _table_of(name)
        endings = [suffix[1:] for suffix in reversed(file.suffixes)]
        format = next((ending for ending in endings if ending in FORMATS), None)
        if format is None:
            raise UserError(
                f"{file}: expected a table of images (.{', .'.join(FORMATS)}), or a folder with a "
                "table such as metadata.csv"
            )
        if not self.header and format not in ("csv", "tsv"):
            raise UsageError(f"data.header=false: {file} has column names; leave this key out")
        requested = [self.image, FILE_NAME, *self.captions, *self.source]
        options = {"header": self.header} if format in ("csv", "tsv") else {}
        rows = Stream(part, partial(reader(format), file, requested, **options)).sliced(slice_)
        captioned = [row for chunk in rows.read() for row in self._captioned(chunk, file)]
        usable = self._usable(captioned, file)
        if not usable:
            raise UserError(f"{part}: contains no sentence pairs")
        return usable

    def _captioned(self, rows: Rows, file: Path) -> Iterable[Captioned]:
        image = self.image
        # The default data.image=image also accepts the column name of an imagefolder.
        if image == "image" and "image" not in rows.names and FILE_NAME in rows.names:
            image = FILE_NAME
        rows.require([image, *self.captions, *self.source], "data.image and data.caption")
        for i, cell in enumerate(rows.values[image]):
            number = rows.first + i
            place = rows.place(i)
            if file.suffix == ".parquet" and not isinstance(cell, str | None):
                # The cell's image is read when a batch is built.
                cell = f"{file.name}#{image}@{number - 1}"
            captions: list[str] = []
            for column in self.captions:
                caption = rows.values[column][i]
                texts = caption if isinstance(caption, list | tuple) else [caption]
                captions += filter(None, [_line(text, place) for text in texts])
            text = "".join(_line(rows.values[column][i], place) for column in self.source)
            yield Captioned(number, _picture_name(cell, file.parent, place), text, captions)

    def _usable(self, rows: list[Captioned], file: Path) -> list[Captioned]:
        """Returns the valid rows of a table of captions.

        A row is invalid if it has no caption, if its image cannot be read, or if most other rows
        have features with another number of channels, or images of pixels instead of features. A
        row with a source text needs no image.

        If there are invalid rows, raises UserError if `data.bad=refuse`; otherwise, logs a warning.
        """
        readable: list[Captioned] = []
        faults: list[str] = []
        for row in tracked(rows, "checking images", "images"):
            try:
                readable.append(replace(row, info=self._check(row)))
            except UserError as error:  # errors are collected for a single message
                faults.append(str(error))
        counts = Counter(_content_of(row) for row in readable if row.picture)
        usual = max(counts, key=counts.__getitem__, default=None)
        usable: list[Captioned] = []
        for row in readable:
            if row.picture and _content_of(row) != usual:
                faults.append(f"{row.picture}: has {_content_of(row)}, but most rows have {usual}")
            else:
                usable.append(row)
        if faults:
            self._report(faults, len(rows), file)
        return usable

    def _check(self, row: Captioned) -> PictureInfo:
        if not row.captions:
            raise UserError(f"row {row.number:,}: no caption")
        if not row.picture and self.source:
            return NO_PICTURE
        if not row.picture:
            raise UserError(f"row {row.number:,}: no image")
        return check_picture(row.picture)

    def _report(self, faults: list[str], num_rows: int, file: Path) -> None:
        """Logs the invalid rows, or raises UserError if `data.bad=refuse`."""
        listing = "; ".join(faults[:SHOWN_FAULTS]) + (" …" if len(faults) > SHOWN_FAULTS else "")
        count = f"{len(faults):,} of {num_rows:,} rows"
        if self.bad == "refuse":
            raise UserError(
                f"{file}: {count} are invalid ({listing}). Fix these rows, or set data.bad=skip"
            )
        log.warning("%s: skipped %s as invalid: %s", file, count, listing)


def _content_of(row: Captioned) -> str:
    """Returns what the image of a row consists of, for messages: pixels, or features."""
    if row.info.channels is None:
        return "pixels"
    return f"features with {row.info.channels:,} channels"


def _table_of(name: str) -> Path:
    """Returns the table file of a training, validation or test set. Raises UserError if the table
    is not found."""
    if not Path(name).is_dir():
        return find_file(name)
    tables = [Path(name, f"metadata.{format}") for format in FORMATS]
    for table in filter(Path.is_file, tables):
        return table
    raise UsageError(
        f"{name}: table of captions not found in the folder; expected metadata.csv, .tsv, "
        ".jsonl or .parquet"
    )


def _identity(row: Captioned, folder: Path) -> str:
    """Returns a text that is equal for all captions of an image: its name without the folder of the
    table, or the checksum of an image in the table. Without an image, returns the source text."""
    if ".parquet#" in row.picture:
        return f"image {row.info.stamp}"
    return row.picture.removeprefix(f"{folder}/") or row.text


def _picture_name(cell: Any, folder: Path, place: str) -> str:
    """Returns the image name of a cell, as a path that includes the folder of the table."""
    path = cell.get("path") if isinstance(cell, Mapping) else cell
    if path is None:
        return ""
    if not isinstance(path, str):
        raise UserError(f"{place}: {path!r} is not the file name of an image")
    name = path.strip()
    if "\t" in name or "\n" in name:
        raise UserError(f"{place}: image name contains a tab or a line break")
    return name if not name or name.startswith(PREFIX) else str(folder / name)


def _line(cell: Any, place: str) -> str:
    if cell is None:
        return ""
    if not isinstance(cell, str):
        raise UserError(f"{place}: expected a text, got {cell!r}")
    return " ".join(cell.split())
