"""Finds, decompresses and decodes text files, and splits them into lines."""

import atexit
import bz2
import codecs
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from nmt.foundation.errors import UsageError, UserError
from nmt.foundation.progress import Progress

BOM = codecs.BOM_UTF8
Item = TypeVar("Item")
CHUNK = 8192
"""Number of lines, table rows or sentence pairs that are read at a time."""
LONGEST_LINE = 1 << 24
"""Maximum bytes per line of stdin or a pipe, far more than any sentence has.

An endless line raises an error before it fills the memory or a disk.
"""
SHOWN_FILES = 8
"""Maximum number of similar file names listed in a message."""
LONE_SURROGATE = "half of a surrogate pair (\\ud800 to \\udfff alone), which is invalid Unicode"
"""Message for text with a lone surrogate, which JSON can express but UTF-8 cannot encode."""
WIDE_BOMS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark is a prefix of this mark
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Maps byte order marks to the names of UTF-16 and UTF-32."""
WIDE_ENCODINGS = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
"""Encodings that are also recognised without a byte order mark."""
HEAD = 4096
"""Number of bytes at the beginning of a file from which its encoding is recognised."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of a Git LFS pointer file, the placeholder of a large file that is not downloaded."""
LFS_ADVICE = "a pointer of Git LFS, not the file itself: run git lfs pull"
Errors = Literal["strict", "replace"]
"""Treatment of invalid UTF-8: UserError (strict), or the replacement character U+FFFD (replace)."""


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


def find_file(path: str) -> Path:
    """Returns `path`, or `path` with the suffix .gz, .xz, .bz2 or .zst if only that file exists.

    The content of a pipe is copied to a temporary file, whose path is returned.

    Raises UserError, which lists similar file names, if no file exists.
    """
    for candidate in (Path(path + ending) for ending in ("", *OPENERS)):
        if candidate.is_file():
            check_no_pointer(candidate)
            return candidate
    if Path(path).is_fifo() or Path(path).is_char_device():
        return _pipe_contents(path)
    is_folder = Path(path).is_dir()
    problem = "is a folder, not a file" if is_folder else "no such file"
    if re.search(r"@|\[[^]]*:", path):
        problem += ". To read only some rows, give NAME@START:STOP"
    folder = Path(path) if is_folder else Path(path).parent
    names = [file.name for file in folder.glob("[!.]*") if file.is_file()]
    # Cutoff 0 lists all files of a small folder.
    similar = difflib.get_close_matches(Path(path).name, names, n=SHOWN_FILES, cutoff=0.0)
    if similar:
        more = " …" if len(names) > len(similar) else ""
        problem += f". Files in the folder: {', '.join(similar)}{more}"
    raise UsageError(f"{path}: {problem}")


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
    """Binary file that calls `step` with the number of bytes of each read."""

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
    kind: phrase after "cannot be read" in the message, such as " as TMX"; "" for no phrase
    """
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{place}: no such file") from None
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
        if first == 1 and errors == "strict":  # the first bytes reveal the encoding
            _check_head(b"".join(chunk)[:HEAD], name)
            chunk[0] = chunk[0].removeprefix(BOM)
        yield _decoded(chunk, first, name, errors)
        first += len(chunk)


def _check_head(head: bytes, name: str) -> None:
    """Raises UserError if the first bytes of a file show UTF-16, UTF-32, a Git LFS pointer or CR
    line endings.
    """
    encoding = _wide_encoding(head)
    if encoding:
        raise UserError(
            f"{name}: encoding is {encoding}, must be UTF-8. Convert the file first: "
            f"iconv -f {encoding} -t UTF-8"
        )
    if head.startswith(LFS_POINTER):
        raise UserError(f"{name}: {LFS_ADVICE}")
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise UserError(
            f"{name}: lines end with carriage returns (CR), but must end with newlines. "
            "Convert the file first: tr '\\r' '\\n'"
        )


def _wide_encoding(head: bytes) -> str | None:
    """Returns the encoding of text in UTF-16 or UTF-32; None for other encodings.

    head: first bytes of the file
    """
    marked = next((name for mark, name in WIDE_BOMS.items() if head.startswith(mark)), None)
    if marked or 0 not in head:
        return marked
    head = head[: len(head) // 4 * 4]  # only complete 4-byte units can be decoded
    num_spaces = head.count(b"\n") + head.count(b" ")

    def fits(encoding: str) -> bool:
        text = head.decode(encoding, "replace")
        is_text = len(text) >= 8 and "".join(text.split()).isprintable()
        # A wrong encoding decodes the bytes of spaces and newlines as other characters.
        return is_text and 0 < num_spaces <= 2 * (text.count("\n") + text.count(" "))

    return next(filter(fits, WIDE_ENCODINGS), None)


def _decoded(lines: list[bytes], first: int, name: str, errors: Errors) -> list[str]:
    """Decodes binary lines and removes their line endings."""
    joined = b"".join(lines)
    # One call for all lines is several times as fast as one call per line.
    if b"\r" not in joined and lines[-1].endswith(b"\n"):
        # For invalid UTF-8, decode_line reports the line.
        with contextlib.suppress(UnicodeDecodeError):
            return joined.decode("utf-8", errors).split("\n")[:-1]
    return [decode_line(line, number, name, errors) for number, line in enumerate(lines, first)]


def decode_line(line: bytes, number: int, name: str, errors: Errors = "strict") -> str:
    """Decodes a binary line and removes its line ending.

    line: bytes of the line
    number: line number, for the message
    name: name of the file, for the message
    errors: treatment of bytes that are not UTF-8

    Raises UserError if the line is not UTF-8.
    """
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors)
    except UnicodeDecodeError as error:
        # Latin-1 has only control characters at 0x80 to 0x9F, where Windows-1252 has quotes.
        encoding = "cp1252" if 0x80 <= line[error.start] <= 0x9F else "latin1"
        raise UserError(
            f"{name}, line {number:,}: invalid UTF-8 (byte 0x{line[error.start]:02x}). "
            f"Convert the file first, e.g. with iconv -f {encoding} -t utf-8"
        ) from error


def check_aligned(first: object, first_lines: int, second: object, second_lines: int) -> None:
    """Raises UserError if two parallel files have different numbers of lines."""
    if first_lines != second_lines:
        raise UserError(
            f"{first} and {second}: not aligned, {first_lines:,} and {second_lines:,} lines. "
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


def check_lines(lines: Any) -> list[str]:
    """Checks lines passed by a Python program, and returns them as a list.

    Raises TypeError if `lines` is not an iterable of strings, and UserError for invalid Unicode.
    """
    if isinstance(lines, str | bytes | Mapping) or not isinstance(lines, Iterable):
        raise TypeError(f"expected a string or a list of strings, got {type(lines).__name__}")
    texts = list(lines)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"expected a list of strings, but item {i} is {type(text).__name__}")
        if has_surrogate(text):
            raise UserError(f"item {i} contains {LONE_SURROGATE}")
    return texts


def has_surrogate(text: str) -> bool:
    """Returns whether a text contains a lone surrogate, which cannot be encoded."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
