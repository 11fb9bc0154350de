"""Input lines of a command, read a chunk at a time, so that memory does not grow with the file."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.data.lines import (
    BOM,
    LONE_SURROGATE,
    Errors,
    decode_line,
    find_file,
    has_surrogate,
    stream_lines,
)
from nmt.foundation.errors import UserError
from nmt.inference.translation import Constraint

CHUNK = 2000
"""Lines per chunk: enough to make batches of similar length, few enough that output appears regularly."""


@dataclass(frozen=True)
class Chunk:
    """Some lines, and the constraints on their translations (None: no constraints)."""

    lines: list[str]
    constraints: list[Constraint] | None


class InputLines:
    """The lines of a file, or those of stdin as they arrive.

    A file is first read once in full, so that its errors are reported before anything is written. Raises UserError at
    that time; for stdin when the faulty line arrives.
    """

    def __init__(
        self,
        name: str | None,
        errors: Errors,
        *,
        prefix: str | None = None,
        constraints: str | None = None,
    ) -> None:
        self.errors = errors
        self._check: Callable[[str], Any] = _anything
        self.count = 0
        self._file = None if name is None else find_file(name)
        self._beside = [
            (find_file(beside), read)
            for beside, read in ((prefix, _prefix), (constraints, _constraint))
            if beside is not None
        ]
        if self._file is None:
            return
        lines = self.count = sum(1 for _ in stream_lines(self._file, errors))
        for beside, _ in self._beside:
            count = sum(1 for _ in stream_lines(beside, errors))
            if count != lines:
                raise UserError(
                    f"{beside} has {count:,} lines, {self._file} has {lines:,}: give one for each"
                )
        for _ in self._constraints():
            pass

    def require(self, check: Callable[[str], Any]) -> None:
        """From now on, `check` must accept every line. Raises UserError with the number of the first line of a file that it
        refuses; for stdin when the line arrives."""
        self._check = check
        if self._file is not None:
            for number, line in enumerate(stream_lines(self._file, self.errors), 1):
                _checked(check, line, f"{self._file}, line {number:,}")

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        """All lines but the first `skip`."""
        if self._file is None:
            yield from (Chunk(lines, None) for lines in _stdin(self.errors, self._check))
            return
        lines = itertools.islice(stream_lines(self._file, self.errors), skip, None)
        constraints = itertools.islice(self._constraints(), skip, None)
        while chunk := list(itertools.islice(lines, CHUNK)):
            yield Chunk(
                chunk, list(itertools.islice(constraints, len(chunk))) if self._beside else None
            )

    def _constraints(self) -> Iterator[Constraint]:
        """The constraints of each line, combined from the prefix file and the constraints file."""
        readers = [self._read(file, read) for file, read in self._beside]
        for number, parts in enumerate(zip(*readers, strict=True), 1):
            if len(parts) == 2 and parts[0].prefix and parts[1].prefix:
                raise UserError(
                    f"{self._beside[1][0]}, line {number:,}: has a prefix, but {self._beside[0][0]} gives one too"
                )
            yield Constraint(
                prefix="".join(part.prefix for part in parts),
                required=tuple(text for part in parts for text in part.required),
                forbidden=tuple(text for part in parts for text in part.forbidden),
            )

    def _read(self, file: Path, read: Callable[[str, str], Constraint]) -> Iterator[Constraint]:
        for number, line in enumerate(stream_lines(file, self.errors), 1):
            yield read(line, f"{file}, line {number:,}")


def _prefix(line: str, place: str) -> Constraint:
    return Constraint(prefix=line)


def _constraint(line: str, place: str) -> Constraint:
    """One line of constraints=FILE.jsonl: an object with some of prefix, required, forbidden; empty: no constraint."""
    shape = 'a line must be an object like {"prefix": "Ein", "required": ["Hund"], "forbidden": ["Katze", "Kater"]}'
    try:
        found = json.loads(line) if line.strip() else {}
    except (ValueError, RecursionError) as error:
        raise UserError(f"{place}: not JSON ({error}); {shape}") from error
    lists = ("required", "forbidden")
    good = (
        isinstance(found, dict)
        and set(found) <= {"prefix", *lists}
        and isinstance(found.get("prefix", ""), str)
        and all(isinstance(found.get(key, []), list) for key in lists)
        and all(isinstance(text, str) for key in lists for text in found.get(key, []))
    )
    if not good:
        raise UserError(f"{place}: {shape}")
    for text in (found.get("prefix", ""), *(text for key in lists for text in found.get(key, []))):
        if has_surrogate(text):
            raise UserError(f"{place}: {LONE_SURROGATE}")
    return Constraint(found.get("prefix", ""), *(tuple(found.get(key, [])) for key in lists))


def _anything(line: str) -> None:
    """Accepts every line."""


def _checked(check: Callable[[str], Any], line: str, place: str) -> str:
    try:
        check(line)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error
    return line


def _stdin(errors: Errors, check: Callable[[str], Any]) -> Iterator[list[str]]:
    """The lines of stdin, as they arrive."""
    prompt, rest, number = sys.stdin.isatty(), b"", 0
    while True:
        if prompt:
            print("> ", end="", file=sys.stderr, flush=True)
        data = os.read(sys.stdin.fileno(), 1 << 16)
        *lines, rest = (rest + data).split(b"\n")
        if not data and rest:
            lines, rest = [rest], b""
        texts, fault = [], None
        for line in lines:
            number += 1
            try:
                text = decode_line(
                    line.removeprefix(BOM) if number == 1 else line, number, "stdin", errors
                )
                texts.append(_checked(check, text, f"stdin, line {number:,}"))
            except UserError as error:  # the lines before it are written first
                fault = error
                break
        for start in range(0, len(texts), CHUNK):
            yield texts[start : start + CHUNK]
        if fault is not None:
            raise fault
        if not data:
            return
