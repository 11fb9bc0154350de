"""Two aligned text files, a sentence a line (`train.en`, `train.de`), plain or .gz; and how text files are read."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from nmt.data import Pairs, Splits, check_not_empty
from nmt.errors import UserError


class TextFiles:
    """`{train,validation,test}.{source,target}`: the parts are given as path prefixes, the languages as suffixes.

    `{prefix}.{suffix}.gz` is read where `{prefix}.{suffix}` does not exist.
    """

    def __init__(self, *, train: str, validation: str, test: str | None = None, source: str, target: str) -> None:
        self.prefixes = (train, validation, test)
        self.languages = (source, target)

    def load(self) -> Splits:
        train, validation, test = self.prefixes
        return Splits(
            train=self._pairs(train),
            validation=self._pairs(validation),
            test=None if test is None else self._pairs(test),
            languages=self.languages,
        )

    def _pairs(self, prefix: str) -> Pairs:
        files = [find(f"{prefix}.{language}") for language in self.languages]
        source, target = (read_lines(file) for file in files)
        check_aligned(files[0], len(source), files[1], len(target))
        return check_not_empty(Pairs(source, target, f"{files[0]}, {files[1].name}"))


def check_aligned(first: Path, first_lines: int, second: Path, second_lines: int) -> None:
    """Raises UserError unless both files have the same number of lines."""
    if first_lines != second_lines:
        raise UserError(
            f"the files are not aligned: {first} has {first_lines:,} lines, {second} has {second_lines:,}. "
            "Line n of one must be the translation of line n of the other."
        )


def find(path: str) -> Path:
    """The file, or the same name with .gz; raises UserError if neither is there."""
    for candidate in (Path(path), Path(path + ".gz")):
        if candidate.is_file():
            return candidate
    what = "is a folder, not a file" if Path(path).is_dir() else "no such file"
    near = sorted(p.name for p in Path(path).parent.glob("*") if p.is_file())[:8] if Path(path).parent.is_dir() else []
    raise UserError(f"{path}: {what}" + (f". In that folder: {', '.join(near)}" if near else ""))


def read_lines(file: Path) -> list[str]:
    """The lines of a UTF-8 file. Newline is the only separator (the Unicode line separators are not); a carriage return
    before it and a byte order mark are dropped.

    Raises UserError naming file and line if the bytes are not UTF-8, or not a whole gzip file.
    """
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{file}: cannot be read ({error})") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{file}, line {line:,}: not UTF-8 (byte 0x{data[error.start]:02x}). "
            "Convert the file first, e.g. with iconv -f latin1 -t utf-8."
        ) from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
