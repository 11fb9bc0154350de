"""Destinations of output lines: stdout, or a file that is complete or absent and can be resumed."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeVar

from nmt.foundation.errors import UserError
from nmt.storage.files import sync_folder, write_atomically
from nmt.storage.lock import Lock

log = logging.getLogger(__name__)
Chunk = TypeVar("Chunk")
OnFailure = Literal["delete", "keep", "resume"]
DELETE_IT = "Delete it, or choose another output"


def open_sink(
    name: str | None,
    *,
    work: Mapping[str, str] | None = None,
    resume: bool = False,
    on_failure: OnFailure = "delete",
) -> StreamSink:
    """Opens the destination of output lines, a context manager.

    name: a file, a pipe or a device (None: stdout)
    work: names and hashes of the models, inputs and settings that the output depends on
    resume: continues FILE.partial after its last finished chunk
    on_failure: delete FILE.partial if the work fails, keep it, or keep it for `resume`

    Raises UserError if the output cannot be written, another process writes it, or FILE.partial
    belongs to other work, or holds finished lines that `resume` is not to continue.
    """
    path = None if name is None else Path(name)
    if path is None or (path.exists() and not path.is_file()):
        return StreamSink(path)
    return FileSink(path, work or {}, resume=resume, on_failure=on_failure)


class StreamSink:
    """Writes lines to stdout, a pipe or a device."""

    finished_lines = 0
    """Lines of the input that an earlier, interrupted run has finished."""
    sums: Sequence[float] = ()
    """Sums of figures of all lines; see `add`."""

    def __init__(self, path: Path | None) -> None:
        self.name = f"output={path or 'stdout'}"
        if path is None and sys.stdout is None:
            raise UserError("output=stdout: it is closed")
        with self._named_errors():
            # Bytes: neither the locale nor newline translation changes the lines.
            target = sys.stdout.fileno() if path is None else path
            self._file = open(target, "wb", closefd=path is not None)  # noqa: SIM115

    def write(self, lines: Sequence[str], input_lines: int | None = None) -> None:
        """Writes the output of some lines of the input.

        lines: output lines, without newlines
        input_lines: number of input lines that they belong to (default: one each)

        Raises UserError if writing fails, e.g. because the disk is full.
        """
        with self._named_errors():
            self._file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
            self._file.flush()

    def own(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks of the input whose output belongs to this sink. Each is written before the
        next one is taken."""
        return iter(chunks)

    def add(self, *figures: float) -> None:
        """Adds figures of a chunk, such as its number of tokens, to `sums`."""
        before = self.sums or [0.0] * len(figures)
        self.sums = [x + y for x, y in zip(before, figures, strict=True)]

    def copy(self, file: Path) -> None:
        """Writes the content of a file. Raises UserError if that fails."""
        with self._named_errors(), open(file, "rb") as opened:
            shutil.copyfileobj(opened, self._file)

    def __enter__(self) -> StreamSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with contextlib.suppress(OSError):  # `write` has reported what could not be flushed
            self._file.close()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(f"{self.name}: cannot be written ({error.strerror})") from error


@dataclass(frozen=True)
class PartialRecord:
    """Content of FILE.partial.json: the work, and the finished part of its output."""

    work: Mapping[str, str]
    finished_lines: int = 0
    finished_bytes: int = 0


class FileSink(StreamSink):
    """Writes lines to FILE.partial, which is renamed to FILE when all are written."""

    def __init__(
        self, path: Path, work: Mapping[str, str], *, resume: bool, on_failure: OnFailure
    ) -> None:
        self.name = f"output={path}"
        self.path = path
        self.work = dict(work)
        self.on_failure = on_failure
        self._partial = path.with_name(f"{path.name}.partial")
        self._record = path.with_name(f"{path.name}.partial.json")
        if not path.parent.is_dir():
            raise UserError(f"{self.name}: cannot be written (there is no folder {path.parent})")
        self._lock = Lock(path.with_name(f".{path.name}.lock"), self.name)
        try:
            earlier = self._earlier_record(resume)
            self.finished_lines = earlier.finished_lines
            self._save(earlier)
            with self._named_errors():
                self._file = open(self._partial, "ab")  # noqa: SIM115
                # Bytes after the last finished chunk are of an interrupted one.
                self._file.truncate(earlier.finished_bytes)
        except BaseException:
            self._lock.release()
            raise

    def write(self, lines: Sequence[str], input_lines: int | None = None) -> None:
        super().write(lines)
        self.finished_lines += len(lines) if input_lines is None else input_lines
        if self.on_failure != "delete":
            self._save(PartialRecord(self.work, self.finished_lines, self._file.tell()))

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._lock:
            with self._named_errors(), self._file:
                # On the disk before the file has its name.
                if kind is None:
                    os.fsync(self._file.fileno())
            if kind is None:
                os.replace(self._partial, self.path)  # complete or absent
                sync_folder(self.path.parent)
            elif self.on_failure != "delete" and self.finished_lines:
                log.warning(
                    "not finished: %s holds %s finished lines%s",
                    self._partial,
                    f"{self.finished_lines:,}",
                    "; resume=true continues it" if self.on_failure == "resume" else "",
                )
                return
            self._partial.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)

    def _earlier_record(self, resume: bool) -> PartialRecord:
        """Record of FILE.partial when it is continued, otherwise an empty one."""
        if not self._partial.is_file():
            return PartialRecord(self.work)
        try:
            record = PartialRecord(**json.loads(self._record.read_text(encoding="utf-8")))
            others = differences(record.work, self.work)
        except (OSError, ValueError, TypeError, AttributeError):
            others = ["origin unknown"]
        if others:
            raise UserError(
                f"{self._partial}: part of other work (other {', '.join(others)}). {DELETE_IT}"
            )
        if not resume and record.finished_lines:
            is_resumable = self.on_failure == "resume"
            raise UserError(
                f"{self._partial}: holds {record.finished_lines:,} finished lines of this output. "
                + ("Continue with resume=true, or delete it" if is_resumable else DELETE_IT)
            )
        if self._partial.stat().st_size < record.finished_bytes:
            raise UserError(f"{self._partial}: shorter than recorded. Delete it and start again")
        log.info("%s: continuing after %s lines", self._partial, f"{record.finished_lines:,}")
        return record

    def _save(self, record: PartialRecord) -> None:
        write_atomically(self._record, json.dumps(asdict(record), indent=1).encode())


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Names of the models, inputs and settings in which two works differ."""
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


def is_complete(name: str, line_count: int, numbered: bool) -> bool:
    """Whether an earlier run has written the complete output.

    name: output file
    line_count: lines of the input
    numbered: each output line begins with the number of its input line, as in n-best lists

    Raises UserError if the file is there, but cannot be the output of that many lines.
    """
    if not Path(name).is_file() or Path(f"{name}.partial").is_file():
        return False
    with open(name, "rb") as file:
        if numbered:
            count = len({line.split(b" ", 1)[0] for line in file})
        else:
            count = sum(1 for _ in file)
    if count != line_count:
        raise UserError(
            f"output={name}: is there, but has {count:,} lines, not {line_count:,}. "
            "Delete it, or choose another"
        )
    log.info("%s is complete: nothing to do", name)
    return True
