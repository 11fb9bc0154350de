"""Encoding of text: UTF-8 decoding, and messages about other encodings and lone surrogates."""

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from nmt.foundation.errors import UserError

BOM = codecs.BOM_UTF8
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
"""First bytes of a Git LFS pointer file, a placeholder for a large file that has not been
downloaded.
"""
LFS_ADVICE = "a pointer of Git LFS, not the file itself: run git lfs pull"
BINARY_HEADS = {
    LFS_POINTER: LFS_ADVICE,
    rb"\x1f\x8b": "compressed by gzip; give the file a name that ends with .gz",
    rb"\xfd7zXZ\0": "compressed by xz; give the file a name that ends with .xz",
    rb"BZh\d1AY&SY": "compressed by bzip2; give the file a name that ends with .bz2",
    rb"\x28\xb5\x2f\xfd": "compressed by Zstandard; give the file a name that ends with .zst",
    rb"PK\x03\x04": "a ZIP archive; unpack it, or train with data=archive",
    rb"(?s:.{257})ustar[\0 ]": "a tar archive; unpack it, or train with data=archive",
    rb"PAR1(?=[\0-\x08\x0e-\x1f]|\n[\x80-\xff])": "a Parquet table; write a column as text, or train "
    "with data=parquet",
}
"""Descriptions of files that are not text, with the remedy, by a pattern of their first bytes."""
Errors = Literal["strict", "replace"]
"""Treatment of invalid UTF-8: UserError (strict), or the replacement character U+FFFD (replace)."""


def check_head(data: bytes, name: str) -> None:
    """Raises UserError if the beginning of a file shows UTF-16, UTF-32, a compressed or binary file, a
    Git LFS pointer or CR line endings.

    data: first bytes of the file; those after the first HEAD bytes are only searched for newlines
    name: name of the file, for messages
    """
    head = data[:HEAD]
    encoding = _wide_encoding(head)
    if encoding:
        raise UserError(
            f"{name}: encoding is {encoding}, must be UTF-8. Convert the file first: "
            f"iconv -f {encoding} -t UTF-8"
        )
    for pattern, problem in BINARY_HEADS.items():
        if re.match(pattern, head):
            raise UserError(f"{name}: {problem}")
    has_nul = b"\0" in head
    if has_nul and not _is_utf8(head):
        raise UserError(f"{name}: a binary file, not text")
    if not has_nul and b"\n" not in data and b"\r" in head.rstrip(b"\r"):
        raise UserError(
            f"{name}: lines end with carriage returns (CR), but must end with newlines. "
            "Convert the file first: tr '\\r' '\\n'"
        )


def _is_utf8(head: bytes) -> bool:
    """Returns whether the first bytes of a file are UTF-8; the last character may be incomplete."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


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
