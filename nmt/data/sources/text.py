"""Two aligned text files, one sentence per line (`train.en`, `train.de`), plain or compressed; and how text files are
read."""

from __future__ import annotations

import atexit
import bz2
import codecs
import contextlib
import difflib
import functools
import gzip
import io
import itertools
import lzma
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from nmt.data import Pairs, Splits, check_columns, check_values, listed, side_by_side
from nmt.data.links import check_links
from nmt.data.split import cut
from nmt.data.stream import CHUNK, Keep, Stream, in_memory, read_parts
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.foundation.ranges import Share

BOM = codecs.BOM_UTF8


class TextFiles:
    """`{train,validation,test}.{source,target}`: the parts are given as path prefixes, the languages as suffixes.

    `{prefix}.{suffix}.gz` (.xz, .bz2, .zst) is read where `{prefix}.{suffix}` does not exist. `split`: a share of the
    training part for validation, and as much for the test, instead of parts of their own (see split.py). `validation` may
    be several prefixes: the first chooses the best checkpoint. `source` may be several languages. `factors`: suffixes of
    files with a value for each word of the source; `alignment`: suffix of a file with the links of each training pair.
    `{prefix}@START:STOP` takes some of the lines. Raises ValueError if these contradict each other.
    """

    def __init__(
        self,
        *,
        train: str,
        validation: str | list[str] | None = None,
        test: str | None = None,
        split: Share = 0.0,
        source: str | list[str],
        target: str,
        factors: list[str] | None = None,
        alignment: str | None = None,
    ) -> None:
        check_columns(source, validation, test, split, factors)
        self.train, self.validation, self.test, self.split = (
            train,
            listed(validation or []),
            test,
            split,
        )
        self.source, self.target = listed(source), target
        self.factors, self.alignment = factors or [], alignment

    def load(self, keep: Keep = in_memory) -> Splits:
        train, validation, test, beside = read_parts(
            self.stream, keep, self.train, self.validation, self.test, self.split
        )
        return Splits(
            train=train,
            validation=validation,
            test=test,
            languages=("+".join(self.source), self.target),
            beside=beside,
            sources=len(self.source),
            factors=self.factors,
        )

    def stream(self, prefix: str, aligned: bool) -> Stream:
        """A part, by its prefix; with its links if `aligned`."""
        alignment, (prefix, slice_) = self.alignment if aligned else None, cut(prefix)
        suffixes = [*self.source, *self.factors, self.target, *filter(None, [alignment])]
        files = [find_file(f"{prefix}.{suffix}") for suffix in suffixes]
        texts = files[:-1] if alignment else files
        name = ", ".join([str(files[0]), *(file.name for file in texts[1:])])

        def read() -> Iterator[Pairs]:
            first = 1
            for columns in _side_by_side(files):
                for factor in range(1, 1 + len(self.factors)):
                    check_values(f"{files[factor]}, line", columns[0], columns[factor], first)
                links = columns.pop() if alignment else None
                pairs = Pairs(side_by_side(columns[:-1]), columns[-1], name, links)
                if links is not None:
                    check_links(pairs, f"{files[-1]}, line", len(self.factors), first)
                yield pairs
                first += len(pairs)

        return Stream(name, read, files, f"text {len(self.source)} {len(self.factors)}").sliced(
            slice_
        )


def _side_by_side(files: list[Path]) -> Iterator[list[list[str]]]:
    """The lines of several files, chunk by chunk. Raises UserError if the files have not equally many."""
    opened, counts = [stream_chunks(file) for file in files], [0] * len(files)
    while True:
        chunk = [next(lines, []) for lines in opened]
        counts = [count + len(lines) for count, lines in zip(counts, chunk, strict=True)]
        if len(set(counts)) > 1:
            counts = [
                count + sum(map(len, rest)) for count, rest in zip(counts, opened, strict=True)
            ]
            for file, count in zip(files, counts, strict=True):
                check_aligned(files[0], counts[0], file, count)
        if not chunk[0]:
            return
        yield chunk


def _zst(file: Any, mode: str) -> Any:
    """Raises UserError if there is nothing to read it with."""
    try:
        from compression import zstd  # Python 3.14
    except ImportError:
        try:
            from backports import zstd  # the same for older ones
        except ImportError:
            raise UserError(
                f"{file.name}: to read .zst, pip install backports.zstd, or decompress it first"
            ) from None
    return zstd.open(file, mode)


OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _zst,
}
"""How open files are read through, by the endings of their names."""


class _Told(io.FileIO):
    """A file that tells `step` how many bytes of it have been read."""

    def __init__(self, file: Path, step: Callable[[int], None]) -> None:
        super().__init__(file)
        self._step = step

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        self._step(count or 0)
        return count


@contextmanager
def open_file(file: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed if its name says so; a big one shows how far it is read."""
    with (
        Progress(f"reading {file.name}", file.stat().st_size, "bytes") as step,
        io.BufferedReader(_Told(file, step)) as raw,
        OPENERS.get(file.suffix, lambda raw, _: raw)(raw, "rb") as opened,
    ):
        yield opened


def check_aligned(first: Path, first_lines: int, second: Path, second_lines: int) -> None:
    """Raises UserError unless both files have the same number of lines."""
    if first_lines != second_lines:
        raise UserError(
            f"the files are not aligned: {first} has {first_lines:,} lines, {second} has {second_lines:,}. "
            "Line n of one must be the translation of line n of the other."
        )


def find_file(path: str) -> Path:
    """The file, or the same name with .gz, .xz, .bz2 or .zst; raises UserError if none is there."""
    for candidate in (Path(path), *(Path(path + ending) for ending in OPENERS)):
        if candidate.is_file():
            return candidate
    if Path(path).is_fifo() or Path(path).is_char_device():
        return _kept(path)
    what, folder = (
        ("is a folder, not a file", Path(path))
        if Path(path).is_dir()
        else ("no such file", Path(path).parent)
    )
    there = [p.name for p in folder.glob("[!.]*") if p.is_file()]
    near = sorted(
        there,
        key=lambda name: (-difflib.SequenceMatcher(None, name, Path(path).name).ratio(), name),
    )
    shown = (
        f". In that folder: {', '.join(near[:8])}{' …' if len(near) > 8 else ''}" if near else ""
    )
    slices = ". Some rows of a part are NAME@START:STOP" if re.search(r"@|\[[^]]*:", path) else ""
    raise UserError(f"{path}: {what}{slices}{shown}")


@functools.cache
def _kept(path: str) -> Path:
    """What comes out of a pipe, such as <(zcat FILE), in a file that can be read twice; deleted at the end."""
    with tempfile.NamedTemporaryFile(prefix="nmt-", delete=False) as file, open(path, "rb") as pipe:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        shutil.copyfileobj(pipe, file)
    return Path(file.name)


Errors = Literal["strict", "replace"]
"""What happens to bytes that are not UTF-8: a UserError, or the replacement character U+FFFD."""


def read_lines(file: Path) -> list[str]:
    """All lines of a UTF-8 file: see `stream_lines`."""
    return list(stream_lines(file))


def stream_lines(file: Path, errors: Errors = "strict", keep_return: bool = False) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or compressed, one after another. Newline is the only separator (the Unicode line
    separators are not); a carriage return before it and a byte order mark are dropped.

    Raises UserError naming file and line if the bytes are not UTF-8, or not a whole compressed file.
    """
    return itertools.chain.from_iterable(stream_chunks(file, errors, keep_return))


def stream_chunks(
    file: Path, errors: Errors = "strict", keep_return: bool = False
) -> Iterator[list[str]]:
    """As `stream_lines`, many lines at a time."""
    try:
        with open_file(file) as opened:
            number = 1
            while lines := list(itertools.islice(opened, CHUNK)):
                if number == 1:
                    lines[0] = lines[0].removeprefix(BOM)
                yield _decoded(lines, number, str(file), errors, keep_return)
                number += len(lines)
    except UserError:
        raise
    except Exception as error:  # what decompressors say of a damaged file, in many ways
        raise UserError(f"{file}: cannot be read ({error})") from error


def _decoded(
    lines: list[bytes], first: int, name: str, errors: Errors, keep_return: bool
) -> list[str]:
    """Lines without their ends; all at once where no line needs a look of its own."""
    whole = b"".join(lines)
    if b"\r" not in whole and lines[-1].endswith(b"\n"):
        with contextlib.suppress(UnicodeDecodeError):
            return whole.decode("utf-8", errors).split("\n")[:-1]
    found = [decode_line(line, number, name, errors) for number, line in enumerate(lines, first)]
    if keep_return:
        return [
            text + "\r" * line.endswith(b"\r\n") for text, line in zip(found, lines, strict=True)
        ]
    return found


def decode_line(line: bytes, number: int, name: str, errors: Errors = "strict") -> str:
    """One line of `name` without its end. Raises UserError if it is not UTF-8."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}, line {number:,}: not UTF-8 (byte 0x{line[error.start]:02x}). "
            "Convert the text first, e.g. with iconv -f latin1 -t utf-8"
        ) from error


HALF = "half of a surrogate pair (\\ud800 to \\udfff alone), which is no text"
"""What JSON can write and UTF-8 cannot."""


def checked(lines: Any) -> list[str]:
    """Lines that a program gives, as a list. Raises TypeError for what are no lines, UserError for what is no text."""
    if isinstance(lines, str | bytes | Mapping) or not isinstance(lines, Iterable):
        raise TypeError(f"give a string, or a list of strings, not {type(lines).__name__}")
    found = list(lines)
    for i, line in enumerate(found):
        if not isinstance(line, str):
            raise TypeError(f"give strings: number {i} is {type(line).__name__}")
        if not_encodable(line):
            raise UserError(f"text number {i} holds {HALF}")
    return found


def not_encodable(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
