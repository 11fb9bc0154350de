"""Text files as lines: finds, opens, decompresses and decodes them."""

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
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress

BOM = codecs.BOM_UTF8
Item = TypeVar("Item")
CHUNK = 8192
"""Lines, rows or pairs that are read at a time."""
SHOWN_FILES = 8
"""File names in a message, the most similar ones first."""
LONE_SURROGATE = "half of a surrogate pair (\\ud800 to \\udfff alone), which is invalid Unicode"
"""Problem of a text that JSON can express and UTF-8 cannot."""
WIDE_BOMS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark is the beginning of this one
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Encodings by their byte order marks."""
WIDE_ENCODINGS = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")
"""Encodings that are recognised without a byte order mark."""
HEAD = 4096
"""Bytes at the beginning of a file from which its encoding is recognised."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of the small file that Git LFS leaves in place of a large one."""
LFS_ADVICE = "a pointer of Git LFS, not the file itself: run git lfs pull"
Errors = Literal["strict", "replace"]
"""Treatment of bytes that are not UTF-8: a UserError, or the replacement character U+FFFD."""


def _open_zst(file: Any, mode: str) -> Any:
    """Raises UserError if no package for .zst is installed."""
    for package in ("compression.zstd", "backports.zstd"):  # the first one is in Python 3.14
        with contextlib.suppress(ImportError):
            return importlib.import_module(package).open(file, mode)
    raise UserError(
        f"{file.name}: to read .zst, pip install backports.zstd, or decompress it first"
    )


OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _open_zst,
}
"""Functions that decompress an open file, by the ending of its name."""


def find_file(path: str) -> Path:
    """The file at `path`, or at the same path with .gz, .xz, .bz2 or .zst.

    A pipe is copied into a temporary file. Raises UserError, with the most similar names of the
    folder, if no file exists.
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
        problem += ". Some rows of a part are NAME@START:STOP"
    folder = Path(path) if is_folder else Path(path).parent
    names = [file.name for file in folder.glob("[!.]*") if file.is_file()]
    # With cutoff 0, all files of a small folder are listed.
    similar = difflib.get_close_matches(Path(path).name, names, n=SHOWN_FILES, cutoff=0.0)
    if similar:
        more = " …" if len(names) > len(similar) else ""
        problem += f". In that folder: {', '.join(similar)}{more}"
    raise UserError(f"{path}: {problem}")


def check_no_pointer(file: Path) -> None:
    """Raises UserError if a file is a pointer of Git LFS."""
    with open(file, "rb") as opened:
        if opened.read(len(LFS_POINTER)) == LFS_POINTER:
            raise UserError(f"{file}: {LFS_ADVICE}")


@functools.cache
def _pipe_contents(path: str) -> Path:
    """A file with the output of a pipe such as <(zcat FILE), to be read twice; deleted at exit."""
    with tempfile.NamedTemporaryFile(prefix="nmt-", delete=False) as file, open(path, "rb") as pipe:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        shutil.copyfileobj(pipe, file)
    return Path(file.name)


class _CountingFile(io.FileIO):
    """A file that calls `step` with the number of bytes of each read."""

    def __init__(self, file: Path, step: Callable[[int], None]) -> None:
        super().__init__(file)
        self._step = step

    def readinto(self, buffer: Any, /) -> int | None:
        count = super().readinto(buffer)
        self._step(count or 0)
        return count


@contextlib.contextmanager
def reading(place: object, kind: str = "") -> Iterator[None]:
    """Raises UserError for any error of a reader in the block.

    place: the file or part that is read.
    kind: format, such as " as TMX", for the message.
    """
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{place}: no such file") from None
    except Exception as error:  # parsers and decompressors raise errors of many types
        reason = " ".join(str(error).split()) or type(error).__name__  # one line
        raise UserError(f"{place}: cannot be read{kind} ({reason})") from error


@contextlib.contextmanager
def open_file(file: Path) -> Iterator[Any]:
    """The bytes of a file, decompressed by the ending of its name; large files show progress."""
    with (
        Progress(f"reading {file.name}", file.stat().st_size, "bytes") as step,
        io.BufferedReader(_CountingFile(file, step)) as raw,
        OPENERS.get(file.suffix, lambda raw, _: raw)(raw, "rb") as opened,
    ):
        yield opened


def batched(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Lists of CHUNK items; the last one may be shorter."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk


def read_lines(file: Path) -> list[str]:
    """All lines of a UTF-8 file: see `stream_lines`."""
    return list(stream_lines(file))


def stream_lines(file: Path, errors: Errors = "strict", keep_return: bool = False) -> Iterator[str]:
    """The lines of a UTF-8 file, plain or compressed.

    Newline is the only separator; the Unicode line separators are not. A byte order mark, and a
    carriage return before a newline, are dropped.

    file: the file.
    errors: treatment of bytes that are not UTF-8.
    keep_return: whether a carriage return before a newline is kept.

    Raises UserError with file and line if the bytes are not UTF-8, or the compression is damaged.
    """
    return itertools.chain.from_iterable(stream_chunks(file, errors, keep_return))


def stream_chunks(
    file: Path, errors: Errors = "strict", keep_return: bool = False
) -> Iterator[list[str]]:
    """The lines of `stream_lines`, in lists of CHUNK lines."""
    with reading(file), open_file(file) as opened:
        yield from decoded_chunks(opened, str(file), errors, keep_return)


def decoded_chunks(
    opened: Iterable[bytes], name: str, errors: Errors = "strict", keep_return: bool = False
) -> Iterator[list[str]]:
    """The lines of an open binary file; `name` identifies it in messages."""
    first = 1
    for chunk in batched(opened):
        if first == 1 and errors == "strict":  # only the beginning shows an encoding
            _check_head(b"".join(chunk)[:HEAD], name)
            chunk[0] = chunk[0].removeprefix(BOM)
        yield _decoded(chunk, first, name, errors, keep_return)
        first += len(chunk)


def _check_head(head: bytes, name: str) -> None:
    """Raises UserError if the first bytes of a file show that it is not lines of UTF-8."""
    encoding = _wide_encoding(head)
    if encoding:
        raise UserError(
            f"{name}: not UTF-8 but {encoding}. Convert it first: iconv -f {encoding} -t UTF-8"
        )
    if head.startswith(LFS_POINTER):
        raise UserError(f"{name}: {LFS_ADVICE}")
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise UserError(
            f"{name}: lines end with carriage returns (CR), and must end with newlines. "
            "Convert it first: tr '\\r' '\\n'"
        )


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 if the first bytes of a text are in it, else None."""
    marked = next((name for mark, name in WIDE_BOMS.items() if head.startswith(mark)), None)
    if marked or 0 not in head:
        return marked
    head = head[: len(head) // 4 * 4]  # whole characters
    num_spaces = head.count(b"\n") + head.count(b" ")

    def fits(encoding: str) -> bool:
        text = head.decode(encoding, "replace")
        is_text = len(text) >= 8 and "".join(text.split()).isprintable()
        # In a wrong encoding, the bytes of spaces and newlines are other characters.
        return is_text and 0 < num_spaces <= 2 * (text.count("\n") + text.count(" "))

    return next(filter(fits, WIDE_ENCODINGS), None)


def _decoded(
    lines: list[bytes], first: int, name: str, errors: Errors, keep_return: bool
) -> list[str]:
    """Lines without their ends."""
    joined = b"".join(lines)
    # One call for all lines: several times as fast as one for each.
    if b"\r" not in joined and lines[-1].endswith(b"\n"):
        with contextlib.suppress(UnicodeDecodeError):  # the loop below reports the line
            return joined.decode("utf-8", errors).split("\n")[:-1]
    texts = [decode_line(line, number, name, errors) for number, line in enumerate(lines, first)]
    if keep_return:
        ends = ("\r" if line.endswith(b"\r\n") else "" for line in lines)
        return [text + end for text, end in zip(texts, ends, strict=True)]
    return texts


def decode_line(line: bytes, number: int, name: str, errors: Errors = "strict") -> str:
    """Line `number` of `name` without its end. Raises UserError if it is not UTF-8."""
    try:
        return line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name}, line {number:,}: not UTF-8 (byte 0x{line[error.start]:02x}). "
            "Convert the text first, e.g. with iconv -f latin1 -t utf-8"
        ) from error


def check_aligned(first: Path, first_lines: int, second: Path, second_lines: int) -> None:
    """Raises UserError unless both files have the same number of lines."""
    if first_lines != second_lines:
        raise UserError(
            f"the files are not aligned: {first} has {first_lines:,} lines, "
            f"{second} has {second_lines:,}. "
            "Line n of one must be the translation of line n of the other."
        )


def check_lines(lines: Any) -> list[str]:
    """Lines that a Python program passes, as a list.

    Raises TypeError unless they are strings, UserError for invalid Unicode.
    """
    if isinstance(lines, str | bytes | Mapping) or not isinstance(lines, Iterable):
        raise TypeError(f"give a string, or a list of strings, not {type(lines).__name__}")
    texts = list(lines)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"give strings: number {i} is {type(text).__name__}")
        if has_surrogate(text):
            raise UserError(f"text number {i} holds {LONE_SURROGATE}")
    return texts


def has_surrogate(text: str) -> bool:
    """Whether a text contains half of a surrogate pair, so that it cannot be encoded."""
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
