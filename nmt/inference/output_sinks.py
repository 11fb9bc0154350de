"""Destinations (sinks) of output lines: stdout, or a resumable file that is either complete or
absent."""

import contextlib
import glob
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from nmt.foundation.errors import UsageError, UserError
from nmt.storage.files import (
    check_folder,
    read_json_object,
    remove_unfinished,
    sync_folder,
    write_atomically,
)
from nmt.storage.lock import Lock

log = logging.getLogger(__name__)
Chunk = TypeVar("Chunk")
OnFailure = Literal["delete", "keep", "resume"]
STDOUT = ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Paths of stdout."""
DELETE_IT = "Delete this output, or choose another output"


def open_sink(
    name: str | None,
    *,
    work: Mapping[str, str] | None = None,
    resume: bool = False,
    on_failure: OnFailure = "delete",
) -> "StreamSink":
    """Context manager that opens the destination (sink) of output lines.

    The lines of a file are written to FILE.partial, which is renamed to FILE when it is complete.

    name: path of a file, pipe or device; None writes to stdout
    work: names and hashes of the models, inputs and settings that the output depends on
    resume: whether to continue FILE.partial after its last finished chunk
    on_failure: treatment of FILE.partial if the work fails: `delete` removes the file, `keep` keeps
        it as a record, `resume` keeps it for a later run with `resume`

    Raises UserError if the output cannot be written, another process writes it, FILE.partial
    belongs to other work, or FILE.partial has finished lines and `resume` is not set.
    """
    # The file that stdout is redirected to must not be replaced.
    path = None if name in (None, *STDOUT) else Path(name)
    if path is not None and path.is_dir():
        raise UsageError(f"output={path}: is a folder; give the name of a file")
    if path is None or (path.exists() and not path.is_file()):
        return StreamSink(path)
    return FileSink(_target(path), work or {}, resume=resume, on_failure=on_failure)


def _target(path: Path) -> Path:
    """Returns the file that a symbolic link leads to, so that the link stays a link."""
    return path.resolve() if path.is_symlink() else path


class StreamSink(contextlib.AbstractContextManager["StreamSink"]):
    """Sink that writes lines to stdout, a pipe or a device."""

    finished_lines = 0
    """Number of input lines whose output is written, by this run or an interrupted one."""
    sums: Sequence[float] = ()
    """Sums of the values passed to `add`, one sum per argument."""

    def __init__(self, path: Path | None) -> None:
        self.name = f"output={path or 'stdout'}"
        if path is None and sys.stdout is None:
            raise UserError("output=stdout: stdout is closed; give output=FILE")
        with self._named_errors():
            # Binary mode, so that neither the locale nor newline translation changes the lines.
            target = sys.stdout.fileno() if path is None else path
            self._file = open(target, "wb", closefd=path is not None)  # noqa: SIM115

    def write(self, lines: Sequence[str], input_lines: int | None = None) -> None:
        """Writes the output of consecutive input lines.

        lines: output lines, without newlines
        input_lines: number of input lines that the output belongs to; None for one per output line

        Raises UserError if writing fails, e.g. because the disk is full.
        """
        with self._named_errors():
            self._file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "replace"))
            self._file.flush()
        self.finished_lines += len(lines) if input_lines is None else input_lines

    def own(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yields the input chunks whose output belongs to this sink.

        The caller must write the output of a chunk before taking the next chunk.
        """
        return iter(chunks)

    def add(self, *figures: float) -> None:
        """Adds the values of a chunk, such as its number of tokens, to `sums`."""
        before = self.sums or [0.0] * len(figures)
        self.sums = [x + y for x, y in zip(before, figures, strict=True)]

    def copy(self, file: Path) -> None:
        """Copies the content of a file to the output. Raises UserError if writing fails."""
        with self._named_errors(), open(file, "rb") as opened:
            shutil.copyfileobj(opened, self._file)
            self._file.flush()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with contextlib.suppress(OSError):  # `write` has already raised the error of a failed flush
            self._file.close()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UserError(
                f"{self.name}: cannot be written ({error.strerror or error})"
            ) from error


class FileSink(StreamSink):
    """Sink that writes lines to FILE.partial, which is renamed to FILE when all lines are written.

    FILE.partial.json records the incomplete output: `work` (names and hashes of the models, inputs
    and settings), `finished_lines` (number of input lines whose output has been written) and
    `finished_bytes` (size of their output).
    """

    def __init__(
        self, path: Path, work: Mapping[str, str], *, resume: bool, on_failure: OnFailure
    ) -> None:
        self.name = f"output={path}"
        self.path = path
        self.work = dict(work)
        self.on_failure = on_failure
        self._partial = path.with_name(f"{path.name}.partial")
        self._record = path.with_name(f"{path.name}.partial.json")
        check_folder(path, self.name)
        self._lock = Lock(path.with_name(f".{path.name}.lock"), self.name)
        try:
            remove_unfinished(path.parent, glob.escape(self._record.name))
            earlier = self._earlier_record(resume)
            self.finished_lines = earlier["finished_lines"]
            self._save(earlier["finished_bytes"])
            with self._named_errors():
                self._file = open(self._partial, "ab")  # noqa: SIM115
                # Bytes after the last finished chunk belong to an interrupted chunk.
                self._file.truncate(earlier["finished_bytes"])
        except BaseException:
            self._lock.release()
            raise

    def write(self, lines: Sequence[str], input_lines: int | None = None) -> None:
        super().write(lines, input_lines)
        if self.on_failure != "delete":
            self._save(self._file.tell())

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._lock:
            # After an error, `write` has already raised the error of a failed flush.
            with contextlib.suppress(OSError) if kind else self._named_errors(), self._file:
                # The content must be on the disk before the file is renamed.
                if kind is None:
                    os.fsync(self._file.fileno())
            if kind is None:
                os.replace(self._partial, self.path)  # the file is complete or absent
                sync_folder(self.path.parent)
            elif self.on_failure != "delete" and self.finished_lines:
                log.warning(
                    "interrupted: %s contains the output for the first %s input lines%s",
                    self._partial,
                    f"{self.finished_lines:,}",
                    "; continue with resume=true" if self.on_failure == "resume" else "",
                )
                return
            self._partial.unlink(missing_ok=True)
            self._record.unlink(missing_ok=True)

    def _earlier_record(self, resume: bool) -> dict[str, Any]:
        """Returns the record of an existing FILE.partial to continue, otherwise an empty record.

        Raises UserError if FILE.partial exists and cannot be continued.
        """
        empty = {"finished_lines": 0, "finished_bytes": 0}
        if not self._partial.is_file():
            return empty
        record = {**empty, **read_json_object(self._record)}
        lines = record["finished_lines"]
        if others := differences(record.get("work"), self.work):
            raise UserError(
                f"{self._partial}: unfinished output of a command with other settings or input "
                f"({others}). {DELETE_IT}"
            )
        if not resume and lines:
            is_resumable = self.on_failure == "resume"
            raise UserError(
                f"{self._partial}: contains {lines:,} finished lines of an interrupted command. "
                + ("Continue with resume=true, or delete the file" if is_resumable else DELETE_IT)
            )
        if self._partial.stat().st_size < record["finished_bytes"]:
            raise UserError(
                f"{self._partial}: the file is shorter than recorded in {self._record}. Delete "
                "both files"
            )
        log.info(
            "%s: continuing the interrupted output after %s lines", self._partial, f"{lines:,}"
        )
        return record

    def _save(self, finished_bytes: int) -> None:
        record = {
            "work": self.work,
            "finished_lines": self.finished_lines,
            "finished_bytes": finished_bytes,
        }
        write_atomically(self._record, json.dumps(record, indent=1).encode())


def differences(before: Any, now: Mapping[str, str]) -> str:
    """Returns a phrase for the differences between the records of two outputs, such as "different
    settings"; "" for equal records.

    A record contains the names and hashes of everything on which the output depends: models, inputs
    and settings.

    before: record of an earlier output, as read from its file
    now: record of this output
    """
    if not isinstance(before, Mapping):
        return "unknown origin"
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"different {name}" for name in names)


def is_complete(name: str, line_count: int, numbered: bool) -> bool:
    """Returns whether an earlier run has written the complete output.

    name: path of the output file
    line_count: number of input lines
    numbered: whether each output line begins with the number of its input line, as in n-best lists

    Raises UserError if the file exists but has a different number of lines.
    """
    # Parts are left if a kill interrupted the removal of the joined parts.
    is_partial = Path(f"{_target(Path(name))}.partial").is_file() or Path(f"{name}.parts").is_dir()
    if is_partial or not Path(name).is_file():
        return False
    with open(name, "rb") as file:
        lines = {line.split(b" ", 1)[0] for line in file} if numbered else file
        count = sum(1 for _ in lines)
    if count != line_count:
        raise UserError(
            f"output={name}: the existing file has {count:,} lines, expected {line_count:,}. "
            f"{DELETE_IT}"
        )
    log.info(
        "output=%s: the file has as many lines as the input, so nothing is translated; to "
        "translate with another model, delete the file",
        name,
    )
    return True
