"""Output that several processes write together as part files, which are joined or kept as parts.

The input chunks are divided into blocks. Each process (rank) takes the next free block and writes
its output to a separate part file, which appears only when it is complete. Rank 0 joins the part
files in order. Interrupted work resumes with the blocks that have no part file.

Processes without a connection, such as the jobs of a Slurm array, each write every N-th block.
"""

import contextlib
import itertools
import json
import logging
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from nmt.foundation.errors import UserError
from nmt.foundation.ranks import Ranks
from nmt.inference.input_lines import CHUNK
from nmt.inference.output_sinks import (
    DELETE_IT,
    OnFailure,
    StreamSink,
    differences,
    open_sink,
)
from nmt.inference.text_input import FINISHED, LINES_PER_PART, MANIFEST
from nmt.storage.files import read_json_object, remove_unfinished, write_atomically
from nmt.storage.lock import Lock

log = logging.getLogger(__name__)
Chunk = TypeVar("Chunk")
BLOCKS = 100
"""Number of blocks into which a small input is divided, enough to balance ranks of different
speed."""
MOST_CHUNKS = 10
"""Maximum number of chunks in a block, about two minutes of work. If a rank is killed, the work on
its block is lost.
"""
NEEDS_ONE_OUTPUT = (
    "not supported with several processes or an output folder; use a single process, and "
    "output=FILE or stdout"
)
"""End of the error message for settings that need all lines in one process."""
JOB = re.compile(r"(?P<number>[1-9]\d{0,8})/(?P<count>[1-9]\d{0,8})")
"""Regular expression for the number of a job and the number of jobs, such as 3/8."""


@dataclass(frozen=True)
class JobShare:
    """Share of the work that one of several independent processes does, such as a job of a Slurm
    array.

    number: index of the process, from 0
    count: number of processes
    """

    number: int = 0
    count: int = 1


WHOLE = JobShare()
"""Share for a single process that does all the work."""


def parse_job(text: str) -> JobShare | None:
    """Parses a job written as K/N, with K counted from 1; returns None for any other text."""
    match = JOB.fullmatch(text)
    if match is None or int(match["number"]) > int(match["count"]):
        return None
    return JobShare(int(match["number"]) - 1, int(match["count"]))


def in_parts(ranks: Ranks, output: str | None) -> bool:
    """Returns whether the output is written as part files.

    Part files are written if there are several ranks, if the output is a folder, or if an earlier
    run with several ranks began the output file.
    """
    return ranks.several or str(output).endswith("/") or Path(f"{output}.parts").is_dir()


def sink_of(
    ranks: Ranks,
    output: str | None,
    line_count: int,
    work: Mapping[str, str],
    resume: bool = False,
    on_failure: OnFailure = "delete",
    job: JobShare = WHOLE,
) -> contextlib.AbstractContextManager[StreamSink]:
    """Returns the sink of output lines: part files for several ranks or an output folder, otherwise
    a single file or stream.

    ranks: processes (ranks) that share the work
    output: path of a file, pipe or device, or of a folder for part files, which ends with /; None
        writes to stdout
    line_count: number of input lines
    work: names and hashes of everything that the output depends on
    resume: whether to continue an interrupted output file
    on_failure: treatment of an incomplete output file if the work fails: `delete`, `keep` or
        `resume`
    job: share of the blocks that this command writes

    Raises UserError if the output cannot be written or continued, or if the ranks have different
    values of `work` or share stdout as output.
    """
    if not in_parts(ranks, output):
        return open_sink(output, work=work, resume=resume, on_failure=on_failure)
    if output is None:
        raise UserError(
            "output=stdout: several processes cannot write to stdout; set output=FILE, or "
            "output=FOLDER/ for part files, each with the output for consecutive input lines"
        )
    return _shared(ranks, output, line_count, work, job)


class PartsSink(StreamSink):
    """Sink that writes the output of each block of input chunks to a part file.

    folder: folder of the part files
    chunk_count: number of chunks in the input
    block_size: number of chunks in a block
    ranks: processes (ranks) that share the work
    job: share of the blocks that this command writes
    """

    def __init__(
        self, folder: Path, chunk_count: int, block_size: int, ranks: Ranks, job: JobShare
    ) -> None:
        self._folder = folder
        self._ranks = ranks
        self._job = job
        self._block_size = block_size
        self._lines: list[str] = []
        numbers = range(math.ceil(chunk_count / block_size))
        self.parts = [folder / f"part-{number:05}" for number in numbers]
        # Rank 0 lists missing parts for all ranks: some ranks may already write.
        own_blocks = numbers[job.number :: job.count]
        self._missing = ranks.of_first([n for n in own_blocks if not self.parts[n].exists()])

    def own(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        chunks = iter(chunks)
        position = 0
        for block in self._ranks.claimed(self._missing, str(self._folder)):
            first = block * self._block_size - position
            yield from itertools.islice(chunks, first, first + self._block_size)
            position = (block + 1) * self._block_size  # chunks that are read or skipped
            # The caller has written all chunks of the block when it asks for the next one. The
            # part file follows the file with its sums.
            part = self.parts[block]
            if self.sums:
                write_atomically(part.with_suffix(".json"), json.dumps(self.sums).encode())
            text = "".join(f"{line}\n" for line in self._lines)
            write_atomically(part, text.encode("utf-8", "replace"))
            self._lines = []
            self.sums = []

    def write(self, lines: Sequence[str], input_lines: int | None = None) -> None:
        self._lines += lines
        self.finished_lines += len(lines) if input_lines is None else input_lines

    def finish(self, keeps_parts: bool) -> None:
        """Sets `sums` to the totals over all part files, and marks the folder as complete.

        With several jobs, only the job that finishes last has these effects, because the folder
        then contains all part files.

        keeps_parts: whether the part files are the output, instead of a file that joins them

        Raises UserError if a part file is missing.
        """
        absent = [part for part in self.parts if not part.exists()]
        if absent and self._job.count == 1:
            raise UserError(
                f"{absent[0]}: not found; all machines must share the folder {self._folder}"
            )
        if absent:
            log.info(
                "%s: job %s of %s is finished; the other jobs still have to write %s part files",
                self._folder,
                self._job.number + 1,
                self._job.count,
                f"{len(absent):,}",
            )
            return
        files = [part.with_suffix(".json") for part in self.parts]
        rows = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
        self.sums = [sum(column) for column in zip(*rows, strict=True)]
        if keeps_parts:
            # Another job may write the same marker at this moment, so only parts are removed.
            remove_unfinished(self._folder, "part-*")
            write_atomically(self._folder / FINISHED, b"")


@contextlib.contextmanager
def _shared(
    ranks: Ranks, output: str, line_count: int, work: Mapping[str, str], job: JobShare
) -> Iterator[StreamSink]:
    """Yields a sink of part files, and joins the files at the end unless `output` is a folder.

    After a UserError, each rank stops when its current block is finished.
    """
    ranks.agree("work", dict(work), "give all processes the same model, files and settings")
    chunk_count = math.ceil(line_count / CHUNK)
    block_size = max(1, min(MOST_CHUNKS, math.ceil(chunk_count / BLOCKS)))
    keeps_parts = output.endswith("/")
    folder = Path(output if keeps_parts else f"{output}.parts")
    with contextlib.ExitStack() as stack:
        whole = None
        problem: UserError | None = None
        if ranks.first:
            try:
                if not keeps_parts:
                    whole = stack.enter_context(open_sink(output, work=work))
                _claim_folder(folder, {**work, LINES_PER_PART: str(block_size * CHUNK)})
                name = f".lock-{job.number}" if job.count > 1 else ".lock"
                lock = Lock(folder / name, f"output={output}")
                if job.count == 1:  # only the holder of the lock may remove the folder
                    stack.push(partial(_leave, folder))
                stack.enter_context(lock)
            except UserError as error:
                problem = error
        # All ranks raise the problem of the first one, so that no rank waits for it.
        if problem := ranks.of_first(problem):
            raise problem
        sink = PartsSink(folder, chunk_count, block_size, ranks, job)
        try:
            yield sink
        except UserError as error:
            ranks.end_claims(str(folder))
            ranks.gather(str(error))
            raise
        for number, error_text in enumerate(ranks.gather("")):
            if error_text:
                raise UserError(f"rank {number}: {error_text}")
        if ranks.first:
            sink.finish(keeps_parts)
        sink.sums = ranks.of_first(sink.sums)
        if whole is not None:
            for part in sink.parts:
                whole.copy(part)
    if whole is not None:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Removes the part files of an output, and their folder if no other files are left."""
    # Killed processes leave locks and unfinished files.
    for name in (MANIFEST, FINISHED, "part-*"):
        remove_unfinished(folder, name)
    # The manifest is deleted last, because parts without a manifest are of unknown origin.
    for pattern in (".lock", ".lock-*", "part-*", FINISHED, MANIFEST):
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the folder contains other files
        folder.rmdir()


def _leave(folder: Path, error: type[BaseException] | None, *_: object) -> None:
    """Removes the folder of part files if an error has ended the work before the first part."""
    if error is not None and issubclass(error, UserError) and not list(folder.glob("part-*")):
        _remove(folder)


def _claim_folder(folder: Path, work: Mapping[str, str]) -> None:
    """Creates a folder for part files, with a manifest of models, inputs and settings.

    Raises UserError if the folder cannot be created, or contains other files or part files of
    another output.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be created ({error.strerror})") from error
    manifest = folder / MANIFEST
    # Listed first: another job may write the manifest, and then its parts, at the same moment.
    names = [file.name for file in folder.glob("[!.]*")]
    if not manifest.exists():
        if names:
            raise UserError(
                f"{folder}: contains {min(names)}, which does not belong to the output of this "
                f"command. {DELETE_IT}"
            )
        write_atomically(manifest, json.dumps(work, indent=1).encode())
        return
    if others := differences(read_json_object(manifest), work):
        raise UserError(
            f"{folder}: contains output of a command with other settings or input ({others}). "
            f"{DELETE_IT}"
        )
