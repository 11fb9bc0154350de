"""Reads and writes lines a chunk at a time, so that memory does not grow with the file; resumes after a stop."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from nmt.data.sources.text import (
    BOM,
    HALF,
    Errors,
    decode_line,
    find_file,
    not_encodable,
    stream_lines,
)
from nmt.foundation.errors import UserError
from nmt.inference.translation import Constraint
from nmt.storage.files import sync_folder, write_atomically
from nmt.storage.lock import Lock

log = logging.getLogger(__name__)
CHUNK = 2000
"""Lines per chunk: enough to make batches of similar length, few enough that output appears regularly."""


@dataclass(frozen=True)
class Chunk:
    """Some lines, and the constraints on their translations (None: no constraints)."""

    lines: list[str]
    constraints: list[Constraint] | None


class Source:
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
        if not_encodable(text):
            raise UserError(f"{place}: {HALF}")
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


def check_complete(name: str, lines: int, numbered: bool) -> None:
    """Says that an output is there already. Raises UserError if it cannot be that of so many lines of input."""
    count = 0
    with open(name, "rb") as file:
        for line in file:
            number = line.split(b" ", 1)[0]
            count = int(number) + 1 if numbered and number.isdigit() else count + (not numbered)
    if count != lines:
        raise UserError(
            f"output={name}: is there, but has {count:,} lines, not {lines:,}. Delete it, or choose another"
        )
    log.info("%s is complete: nothing to do", name)


class Sink:
    """Writes lines to stdout, or to a file that appears whole when all is done: until then it is called FILE.partial, and
    FILE.partial.json beside it says of what work it is a part (`work`: a name and a hash for each thing that it depends on).

    With `resume` it goes on after the last whole chunk of FILE.partial (`lines` of the input are done), and is `complete`
    if FILE is there already. With None, for work that cannot go on, FILE.partial is deleted if the work fails. `numbered`:
    lines begin with the number of the input line, which may have several. Raises UserError if another process writes the
    same file, or if there is a FILE.partial of other work: it is never overwritten.
    """

    def __init__(
        self,
        name: str | None,
        resume: bool | None = False,
        numbered: bool = False,
        work: Mapping[str, str] | None = None,
    ) -> None:
        self._path = None if name is None else Path(name)
        self._partial = self._path
        self._file: Any = None
        self._keep = resume is not None
        self._lock: Lock | None = None
        self.lines, self.complete = 0, False
        if self._path is None or (self._path.exists() and not self._path.is_file()):
            return
        self._partial = self._path.with_name(f"{self._path.name}.partial")
        self._note = self._path.with_name(f"{self._path.name}.partial.json")
        self._work = dict(work or {})
        if not self._path.parent.is_dir():
            raise UserError(
                f"output={name}: cannot be written (there is no folder {self._path.parent})"
            )
        self._lock = Lock(self._path.with_name(f".{self._path.name}.lock"), f"output={name}")
        try:
            self._look(resume is True, numbered)
        except BaseException:
            self._lock.release()
            raise

    def _look(self, resume: bool, numbered: bool) -> None:
        """What is there already."""
        assert self._partial is not None
        assert self._path is not None
        if self._partial.is_file():
            differs = self._differs()
            if differs:
                raise UserError(
                    f"{self._partial}: part of other work (other {', '.join(differs)}). Delete it, or choose another output"
                )
            if resume:
                self.lines = _cut(self._partial, numbered)
                log.info("%s: going on after %s lines", self._partial, f"{self.lines:,}")
        elif resume and self._path.is_file():
            self.complete = True
            if self._lock is not None:
                self._lock.release()

    def _differs(self) -> list[str]:
        """In what the work of FILE.partial is not this one."""
        try:
            before = json.loads(self._note.read_text(encoding="utf-8"))
            return sorted(
                key for key in {*before, *self._work} if before.get(key) != self._work.get(key)
            )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return ["origin unknown"]

    def release(self) -> None:
        """Gives the output up before anything is written."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Any:
        try:
            if self._partial is None:
                if sys.stdout is None:
                    raise UserError("output=stdout: it is closed")
                self._file = open(
                    sys.stdout.fileno(), "wb", closefd=False
                )  # bytes: no locale, no newline translation
            else:
                if self._lock is not None:
                    write_atomically(self._note, json.dumps(self._work, indent=1).encode())
                self._file = open(self._partial, "ab" if self.lines else "wb")
        except OSError as error:
            raise UserError(
                f"output={self._path or 'stdout'}: cannot be written ({error.strerror})"
            ) from error
        return self.write

    def write(self, lines: Sequence[str]) -> None:
        """Raises UserError if writing fails, e.g. because the disk is full."""
        try:
            self._file.write("".join(line + "\n" for line in lines).encode("utf-8", "replace"))
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(
                f"output={self._path or 'stdout'}: cannot be written ({error.strerror})"
            ) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._close(kind is None)
        finally:
            if self._lock is not None:
                self._lock.release()

    def _close(self, done: bool) -> None:
        try:
            if done and self._lock is not None:
                os.fsync(self._file.fileno())
        except OSError as error:
            raise UserError(f"output={self._path}: cannot be written ({error.strerror})") from error
        finally:
            with contextlib.suppress(OSError):  # what could not be flushed has been told already
                self._file.close()
        if self._lock is None or self._path is None or self._partial is None:
            return
        if done:
            os.replace(self._partial, self._path)
            self._note.unlink(missing_ok=True)
            sync_folder(self._path.parent)
        elif not self._keep:
            self._partial.unlink(missing_ok=True)
            self._note.unlink(missing_ok=True)
        elif self._partial.is_file():
            log.warning(
                "not finished: what is done is in %s; the same command goes on with resume=true",
                self._partial,
            )


def _cut(file: Path, numbered: bool) -> int:
    """Cuts a file after its last whole chunk and returns the number of input lines that are done. Resuming at the end
    of a chunk makes the same batches as a run without a stop, so the result is the same to the last digit."""
    end = count = 0
    border = (0, 0)
    with open(file, "rb+") as opened:
        for line in opened:
            if not line.endswith(b"\n"):
                break
            number = int(line.split(b" ", 1)[0]) if numbered else count
            if number % CHUNK == 0 and number > border[0]:
                border = (number, end)
            end, count = end + len(line), count + 1
        if not numbered and count % CHUNK == 0:
            border = (count, end)
        opened.truncate(border[1])
    return border[0]
