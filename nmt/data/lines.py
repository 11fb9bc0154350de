"""Finds and decompresses text files, and splits them into lines."""

import atexit
import bz2
import contextlib
import difflib
import functools
import gzip
import importlib
import io
import itertools
import lzma
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from nmt.data.text_encoding import (
    BOM,
    LFS_ADVICE,
    LFS_POINTER,
    Errors,
    check_head,
    decode_line,
)
from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.progress import Progress

Item = TypeVar("Item")
CHUNK = 8192
"""Number of lines, table rows or sentence pairs that are read at a time."""
LONGEST_LINE = 1 << 24
"""Maximum bytes per line of stdin or a pipe, far more than any sentence has.

An endless line raises an error before it fills the memory or a disk.
"""
SHOWN_FILES = 8
"""Maximum number of similar file names listed in a message."""


def _open_zst(file: Any, mode: str) -> Any:
    """Opens a .zst file; raises UserError if no Zstandard package is installed."""
    # compression.zstd exists from Python 3.14 on.
    for package in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(package).open(file, mode)
    raise UserError(
        f"{file.name}: reading .zst needs the package backports.zstd; install it with pip, or "
        "decompress the file first"
    )


OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _open_zst,
}
"""Functions that open compressed files for reading, by file extension."""


def names_file(path: str) -> bool:
    """Returns whether `find_file` finds a file: plain, compressed, or a pipe."""
    is_file = any(Path(path + ending).is_file() for ending in ("", *OPENERS))
    return is_file or _is_pipe(path)


def _is_pipe(path: str) -> bool:
    return Path(path).is_fifo() or Path(path).is_char_device()


def find_file(path: str, name: str = "") -> Path:
    """Returns `path`, or `path` with the suffix .gz, .xz, .bz2 or .zst if only that file exists.

    The content of a pipe is copied to a temporary file, whose path is returned.

    path: path of the file
    name: name of the file in the message; by default the path

    Raises UserError, which lists similar file names, if no file exists.
    """
    for candidate in (Path(path + ending) for ending in ("", *OPENERS)):
        if candidate.is_file():
            check_no_pointer(candidate)
            return candidate
    if _is_pipe(path):
        return _pipe_contents(path)
    is_folder = Path(path).is_dir()
    problem = "is a folder, not a file" if is_folder else "file not found"
    if re.search(r"@\d*:\d*$", path):
        problem += ". Rows cannot be selected here; give a file that contains only these rows"
    elif re.search(r"@|\[[^]]*:", path):
        problem += ". To read only some rows, give NAME@START:STOP"
    folder = Path(path) if is_folder else Path(path).parent
    names = [file.name for file in folder.glob("[!.]*") if file.is_file()]
    # Cutoff 0 lists all files of a small folder.
    similar = difflib.get_close_matches(Path(path).name, names, n=SHOWN_FILES, cutoff=0.0)
    if similar:
        more = " …" if len(names) > len(similar) else ""
        problem += f". Files in the folder: {', '.join(similar)}{more}"
    raise UsageError(f"{name or path}: {problem}")


def check_no_pointer(file: Path) -> None:
    """Raises UserError if a file is a Git LFS pointer."""
    with open(file, "rb") as opened:
        if opened.read(len(LFS_POINTER)) == LFS_POINTER:
            raise UserError(f"{file}: {LFS_ADVICE}")


@functools.cache
def _pipe_contents(path: str) -> Path:
    """Copies the output of a pipe, such as <(zcat FILE), to a temporary file deleted at exit."""
    with tempfile.NamedTemporaryFile(prefix="nmt-", delete=False) as file:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        with reading(f"{path}, copied to {file.name}"), open(path, "rb") as pipe:
            length = 0  # bytes since the last newline
            while block := pipe.read(LONGEST_LINE):
                file.write(block)
                earlier = 0 if b"\n" in block else length
                length = earlier + len(block) - block.rfind(b"\n") - 1
                check_line_length(length, path)
    return Path(file.name)


def check_line_length(length: int, name: str) -> None:
    """Raises UserError if a line that is being read has more than LONGEST_LINE bytes."""
    if length > LONGEST_LINE:
        raise UserError(
            f"{name}: a line has more than {LONGEST_LINE:,} bytes; the input must be text with one "
            "sentence or document per line"
        )


class _CountingFile(io.FileIO):
    """Binary file that reports its progress: each read calls `step` with the number of bytes read."""

    def __init__(self, file: Path, step: Callable[[int], None]) -> None:
        super().__init__(file)
        self._step = step

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        self._step(count or 0)
        return count


@contextlib.contextmanager
def reading(place: object, kind: str = "") -> Iterator[None]:
    """Context manager that converts any exception in its block into a UserError.

    place: file or data being read, for the message
    kind: phrase after "cannot be read" in the message, such as " as TMX"; "" without a phrase
    """
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{place}: file not found") from None
    except Exception as error:  # parsers and decompressors raise many exception types
        # the error message on a single line
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{place}: cannot be read{kind} ({reason})") from error


@contextlib.contextmanager
def open_file(file: Path) -> Iterator[Any]:
    """Opens a file for reading bytes, and decompresses it according to its extension. Large files
    show a progress bar."""
    with (
        Progress(f"reading {file.name}", file.stat().st_size, "bytes") as step,
        io.BufferedReader(_CountingFile(file, step)) as raw,
        OPENERS.get(file.suffix, lambda raw, _: raw)(raw, "rb") as opened,
    ):
        yield opened


def batched(items: Iterable[Item], size: int = 0) -> Iterator[list[Item]]:
    """Yields the items in lists of equal size; the last list may be shorter.

    size: number of items in a list; 0 for CHUNK items
    """
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size or CHUNK)):
        yield chunk


def read_lines(file: Path) -> list[str]:
    """Returns all lines of a plain or compressed UTF-8 file."""
    return list(stream_lines(file))


def stream_lines(file: Path, errors: Errors = "strict") -> Iterator[str]:
    """Yields the lines of a plain or compressed UTF-8 file.

    Only newlines separate lines, not Unicode line separators. A byte order mark and a carriage
    return before a newline are removed.

    file: path of the file
    errors: treatment of bytes that are not UTF-8

    Raises UserError with file and line for invalid UTF-8, or if the compression is damaged.
    """
    return itertools.chain.from_iterable(stream_chunks(file, errors))


def stream_chunks(file: Path, errors: Errors = "strict") -> Iterator[list[str]]:
    """Yields the lines of a plain or compressed UTF-8 file in lists of CHUNK lines."""
    with reading(file), open_file(file) as opened:
        yield from decoded_chunks(opened, str(file), errors)


def decoded_chunks(
    opened: Iterable[bytes], name: str, errors: Errors = "strict"
) -> Iterator[list[str]]:
    """Yields the lines of an open binary file in lists of CHUNK lines.

    opened: open binary file, or another iterable of lines as bytes
    name: name of the file, for messages
    errors: treatment of bytes that are not UTF-8
    """
    first = 1
    for chunk in batched(opened):
        if first == 1:
            if errors == "strict":  # the first bytes reveal the encoding
                check_head(b"".join(chunk), name)
            chunk[0] = chunk[0].removeprefix(BOM)
        yield _decoded(chunk, first, name, errors)
        first += len(chunk)


def _decoded(lines: list[bytes], first: int, name: str, errors: Errors) -> list[str]:
    """Decodes binary lines and removes their line endings."""
    joined = b"".join(lines)
    # One call for all lines is several times as fast as one call per line.
    if b"\r" not in joined and lines[-1].endswith(b"\n"):
        # For invalid UTF-8, decode_line reports the line.
        with contextlib.suppress(UnicodeDecodeError):
            return joined.decode("utf-8", errors).split("\n")[:-1]
    return [decode_line(line, number, name, errors) for number, line in enumerate(lines, first)]


def check_aligned(first: object, first_lines: int, second: object, second_lines: int) -> None:
    """Raises UserError if two parallel files have different numbers of lines."""
    if first_lines != second_lines:
        raise UserError(
            f"{first} and {second}: not aligned ({first_lines:,} and {second_lines:,} lines). "
            "Line n of one file must be the translation of line n of the other file"
        )


def read_aligned(*names: str) -> list[list[str]]:
    """Returns the lines of files that must have the same number of lines.

    Raises UserError if a file is not found, or if the numbers of lines differ.
    """
    files = [find_file(name) for name in names]
    texts = [read_lines(file) for file in files]
    for file, lines in zip(files, texts, strict=True):
        check_aligned(files[0], len(texts[0]), file, len(lines))
    return texts
