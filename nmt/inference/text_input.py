"""Text inputs of commands: files, folders of files and columns of Parquet files, on local disks or
in object stores.

Files in object stores are read as streams through fsspec, which is installed with `datasets`.
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.data.formats import Rows
from nmt.data.lines import (
    CHUNK,
    OPENERS,
    check_aligned,
    decoded_chunks,
    find_file,
    reading,
    stream_lines,
)
from nmt.data.streams import file_hash
from nmt.data.text_encoding import Errors
from nmt.foundation.errors import UserError
from nmt.foundation.torchrun import of_torchrun
from nmt.storage.files import read_json_object

MANIFEST = "manifest.json"
"""Name of the manifest in a folder of part files, which describes the work: models, inputs and
settings."""
LINES_PER_PART = "lines per part"
"""Key of the manifest that other files with the same name do not have."""
FINISHED = "_SUCCESS"
"""Name of the empty file that marks a folder of part files as complete, as in Hadoop and Spark."""


COLUMN = re.compile(r"(?P<path>.*(\.parquet|/)):(?P<column>[^/]+)")
"""Regular expression of PATH:COLUMN, where PATH is a Parquet file or a folder of Parquet files."""


@dataclass(frozen=True)
class RemoteFile:
    """File in an object store or another file system of fsspec.

    url: address of the file, such as s3://BUCKET/FILE
    """

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def suffix(self) -> str:
        return Path(self.url).suffix

    def open(self) -> Any:
        import fsspec

        return fsspec.open(self.url, "rb").open()

    def version(self) -> str:
        """Returns the version of the file that the file system reports, such as an ETag."""
        import fsspec

        system, path = fsspec.url_to_fs(self.url)
        return str(system.ukey(path))


@dataclass(frozen=True)
class TextInput:
    """Lines of text in one or several files.

    name: path or address of the file or folder
    files: files, whose lines are concatenated
    column: column of Parquet files; None for their only column
    """

    name: str
    files: Sequence[Path | RemoteFile]
    column: str | None = None

    def __str__(self) -> str:
        return self.name

    def lines(self, errors: Errors = "strict") -> Iterator[str]:
        """Yields the lines of all files, or the cells of the column.

        errors: treatment of bytes that are not UTF-8

        Raises UserError if a file cannot be read, or has lines or cells that are not text.
        """
        for file in self.files:
            if file.suffix == ".parquet":
                yield from self._cells(file)
            elif self.column is not None:
                raise UserError(
                    f"{file}: not a Parquet file, which {self.name}:{self.column} needs"
                )
            elif isinstance(file, Path):
                yield from stream_lines(file, errors)
            else:
                decompress = OPENERS.get(file.suffix, lambda raw, _: raw)
                with reading(file), file.open() as raw, decompress(raw, "rb") as opened:
                    yield from itertools.chain.from_iterable(
                        decoded_chunks(opened, str(file), errors)
                    )

    def require(self, check: Callable[[str], object], errors: Errors = "strict") -> None:
        """Checks all lines. Raises UserError with file and line number for the first invalid line.

        check: function that raises UserError for an invalid line
        errors: treatment of bytes that are not UTF-8
        """
        for file in self.files:
            lines = TextInput(self.name, [file], self.column).lines(errors)
            for number, line in enumerate(lines, 1):
                checked(check, line, f"{file}, line {number:,}")

    def _cells(self, file: Path | RemoteFile) -> Iterator[str]:
        """Yields the cells of a column of a Parquet file."""
        import pyarrow.parquet

        opened = file.open() if isinstance(file, RemoteFile) else file.open("rb")
        with reading(file, " as parquet"), opened, pyarrow.parquet.ParquetFile(opened) as table:
            names = table.schema_arrow.names
            if self.column is None and len(names) > 1:
                raise UserError(
                    f"{file}: has the columns {', '.join(names)}; choose one with "
                    f"{self.name}:COLUMN"
                )
            column = self.column or names[0]
            # A column such as translation.de is a field of another column.
            top, *fields = [column] if column in names else column.split(".")
            paths = [table.schema.column(i).path for i in range(len(table.schema))]
            Rows(str(file), list(dict.fromkeys([*names, *paths])), {}).require(
                [column], f"{self.name}:COLUMN"
            )
            first = 1
            for batch in table.iter_batches(CHUNK, columns=[top]):
                cells = batch.column(top).to_pylist()
                for field in fields:
                    cells = [cell and cell.get(field) for cell in cells]
                yield from Rows(str(file), names, {column: cells}, first).texts(column)
                first += len(cells)

    def digest(self) -> str:
        """Returns a digest of the content of the files; for files in an object store, of their
        versions."""
        total = hashlib.sha256((self.column or "").encode())
        for file in self.files:
            total.update(
                file.version().encode()
                if isinstance(file, RemoteFile)
                else bytes.fromhex(file_hash(file))
            )
        return total.hexdigest()


def checked(check: Callable[[Any], object], value: object, place: str) -> None:
    """Calls a check. Raises its UserError with the place of the value, a file and line, in front of
    the message."""
    try:
        check(value)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def find_input(name: str) -> TextInput:
    """Returns the text input with the given name.

    name: FILE, plain or compressed; FOLDER, whose files are read in the order of their names;
        FILE.parquet:COLUMN or FOLDER/:COLUMN; or an fsspec URL, such as s3://BUCKET/FOLDER/

    Raises UserError if no file is found, or if a folder has an unfinished output.
    """
    columns = COLUMN.fullmatch(name)
    path = columns["path"] if columns else name
    column = columns["column"] if columns else None
    if "://" in path:
        return TextInput(path, _remote_files(path), column)
    if Path(path).is_dir():
        names = [str(file) for file in Path(path).iterdir() if file.is_file()]
        return TextInput(path, [Path(file) for file in _readable(path, names)], column)
    if of_torchrun().several and Path(path).is_fifo():
        raise UserError(f"{path}: several processes cannot share a pipe; give a file")
    return TextInput(path, [find_file(path)], column)


def _remote_files(url: str) -> list[RemoteFile]:
    """Returns the file at a URL, or the files in the folder at the URL."""
    with reading(url):
        import fsspec

        system, path = fsspec.url_to_fs(url)
        if not system.isdir(path):
            system.info(path)  # raises FileNotFoundError
            return [RemoteFile(url)]
        paths = [entry["name"] for entry in system.ls(path, detail=True) if entry["type"] == "file"]
        return [RemoteFile(system.unstrip_protocol(file)) for file in _readable(url, paths)]


def _readable(folder: str, paths: Sequence[str]) -> list[str]:
    """Returns the paths of the text files of a folder in the order of their names.

    Hidden files, files whose names begin with _, and JSON files are not text files.

    Raises UserError if there is no text file, or if nmt has not finished the output in the folder.
    """
    names = {Path(path).name for path in paths}
    is_output = {MANIFEST, FINISHED} <= names
    if MANIFEST in names and not is_output and _is_manifest(folder):
        raise UserError(
            f"{folder}: unfinished output of nmt (file {FINISHED} not found); to finish it, run "
            "the command that created this output again"
        )
    texts = [
        path
        for path in sorted(paths)
        if not Path(path).name.startswith((".", "_")) and not path.endswith(".json")
    ]
    if not texts and not is_output:
        raise UserError(f"{folder}: contains no text files")
    return texts


def _is_manifest(folder: str) -> bool:
    """Returns whether the file MANIFEST of a folder was written by nmt. Files in object stores are
    not read."""
    return "://" in folder or LINES_PER_PART in read_json_object(Path(folder, MANIFEST))


def count_aligned(source: TextInput, target: TextInput, errors: Errors = "strict") -> int:
    """Returns the number of lines of two parallel texts.

    Raises UserError if the numbers of lines differ, or if a line is invalid.
    """
    target_count = sum(1 for _ in target.lines(errors))
    count = sum(1 for _ in source.lines(errors))
    check_aligned(source, count, target, target_count)
    return count
